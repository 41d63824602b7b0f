//! Reads typed values from texts: what a flag, a variable or a key of a file holds. One path for all three sources, so
//! that a value is written alike in each.

use std::fmt;

use serde::de::value::{SeqDeserializer, StringDeserializer};
use serde::de::{self, DeserializeOwned, Deserializer, IntoDeserializer, Visitor};

/// The value is not of its type.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TextError(String);

/// Reads a `T` from `texts`: one text for a plain value, any number for a list.
///
/// # Errors
/// Where the texts are no `T`.
pub fn read<T: DeserializeOwned>(texts: &[String]) -> Result<T, TextError> {
    T::deserialize(Texts(texts))
}

#[derive(Clone, Copy)]
struct Texts<'a>(&'a [String]);

impl Texts<'_> {
    fn one(&self) -> Result<&str, TextError> {
        match self.0 {
            [text] => Ok(text),
            _ => Err(de::Error::custom(format_args!("takes one value, not {}", self.0.len()))),
        }
    }
}

macro_rules! numbers {
    ($($method:ident $visit:ident $type:ty;)*) => { $(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, TextError> {
            let text = self.one()?;
            let number = text.replace('_', "").parse::<$type>();
            let bounds = (<$type>::MIN, <$type>::MAX);
            visitor.$visit(number.map_err(|_| {
                TextError(format!("{text:?} is no number from {} to {}", bounds.0, bounds.1))
            })?)
        }
    )* };
}

impl<'de> Deserializer<'de> for Texts<'_> {
    type Error = TextError;

    numbers! {
        deserialize_u8 visit_u8 u8;
        deserialize_u16 visit_u16 u16;
        deserialize_u32 visit_u32 u32;
        deserialize_u64 visit_u64 u64;
        deserialize_i32 visit_i32 i32;
        deserialize_i64 visit_i64 i64;
        deserialize_f64 visit_f64 f64;
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, TextError> {
        match self.one()? {
            "true" => visitor.visit_bool(true),
            "false" => visitor.visit_bool(false),
            other => Err(TextError(format!("{other:?} is neither true nor false"))),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, TextError> {
        if self.0.is_empty() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, TextError> {
        let items = self.0.iter().map(|text| Item(text.clone()));
        visitor.visit_seq(SeqDeserializer::new(items))
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, TextError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, TextError> {
        let text: StringDeserializer<TextError> = self.one()?.to_owned().into_deserializer();
        visitor.visit_enum(text)
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, TextError> {
        visitor.visit_str(self.one()?)
    }

    serde::forward_to_deserialize_any! {
        i8 i16 i128 u128 f32 char str string bytes byte_buf unit unit_struct tuple tuple_struct map struct
        identifier ignored_any
    }
}

/// One element of a list.
struct Item(String);

impl<'de> IntoDeserializer<'de, TextError> for Item {
    type Deserializer = OwnedTexts;
    fn into_deserializer(self) -> OwnedTexts {
        OwnedTexts([self.0])
    }
}

struct OwnedTexts([String; 1]);

impl<'de> Deserializer<'de> for OwnedTexts {
    type Error = TextError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, TextError> {
        Texts(&self.0).deserialize_any(visitor)
    }

    fn deserialize_u16<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, TextError> {
        Texts(&self.0).deserialize_u16(visitor)
    }

    fn deserialize_u64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, TextError> {
        Texts(&self.0).deserialize_u64(visitor)
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u32 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

impl de::Error for TextError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self(message.to_string())
    }
}

impl fmt::Display for TextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for TextError {}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::path::PathBuf;

    use super::*;

    fn texts(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|&text| text.to_owned()).collect()
    }

    #[test]
    fn reads_every_type_that_knobs_use() {
        assert_eq!(read::<u16>(&texts(&["9_400"])), Ok(9400));
        assert_eq!(read::<bool>(&texts(&["true"])), Ok(true));
        assert_eq!(read::<PathBuf>(&texts(&["/a b"])), Ok(PathBuf::from("/a b")));
        assert_eq!(read::<Vec<PathBuf>>(&texts(&["/a", "/b"])), Ok(vec!["/a".into(), "/b".into()]));
        assert_eq!(read::<Vec<u16>>(&texts(&["1", "2"])), Ok(vec![1, 2]));
        assert_eq!(read::<Option<u32>>(&[]), Ok(None));
        assert_eq!(read::<Option<u32>>(&texts(&["7"])), Ok(Some(7)));
        assert_eq!(read::<SocketAddr>(&texts(&["[::1]:80"])), Ok("[::1]:80".parse().expect("an address")));
    }

    #[test]
    fn errors_say_what_is_wrong() {
        let error = read::<u16>(&texts(&["70000"])).unwrap_err().to_string();
        assert_eq!(error, "\"70000\" is no number from 0 to 65535");
        let error = read::<u16>(&texts(&["1", "2"])).unwrap_err().to_string();
        assert_eq!(error, "takes one value, not 2");
        assert!(read::<bool>(&texts(&["yes"])).is_err());
    }
}
