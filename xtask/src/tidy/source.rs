//! A Rust file as the rules see it: its text, and the same with comments and literals blanked out, so that a search
//! finds code only. A lexer of what can hide code; no parser.

pub(crate) struct Source {
    pub(crate) text: String,
    /// As long as `text` and with the same line breaks; comments and the insides of literals are spaces.
    pub(crate) code: String,
}

/// A function's name and the lines of its whole text, signature included.
pub(crate) struct Function {
    pub(crate) name: String,
    pub(crate) lines: usize,
}

impl Source {
    pub(crate) fn new(text: String) -> Self {
        let code = blank_comments_and_literals(&text);
        Self { text, code }
    }

    /// The code up to the inline test module: what ships.
    pub(crate) fn production(&self) -> &str {
        let end = self.code.find("#[cfg(test)]\nmod ").unwrap_or(self.code.len());
        &self.code[..end]
    }

    /// Names of the modules that this file declares without a body, with the path attribute's file if one is there.
    pub(crate) fn declared_modules(&self) -> Vec<(String, Option<String>)> {
        let mut found = Vec::new();
        let (mut path, mut at) = (None, 0);
        for line in self.code.lines() {
            let original = &self.text[at..at + line.len()];
            at += line.len() + 1;
            let words: Vec<&str> = line.split_whitespace().collect();
            if line.trim_start().starts_with("#[path") {
                path = original.split('"').nth(1).map(str::to_owned);
                continue;
            }
            let Some(position) = words.iter().position(|&word| word == "mod") else { continue };
            if let Some(name) = words.get(position + 1).and_then(|word| word.strip_suffix(';')) {
                found.push((name.to_owned(), path.take()));
            }
        }
        found
    }

    /// Functions with a body, outside of inline tests.
    pub(crate) fn functions(&self) -> Vec<Function> {
        let code = self.production();
        let bytes = code.as_bytes();
        let mut found = Vec::new();
        for (start, _) in code.match_indices("fn ") {
            let fresh = start == 0 || !is_word(bytes[start - 1]);
            let name: String = code[start + 3..].chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            if !fresh || name.is_empty() {
                continue;
            }
            if let Some(end) = body_end(&bytes[start..]) {
                let lines = 1 + bytes[start..start + end].iter().filter(|&&b| b == b'\n').count();
                found.push(Function { name, lines });
            }
        }
        found
    }
}

/// Where the body of the function at the start of `code` ends; `None` where it has none.
fn body_end(code: &[u8]) -> Option<usize> {
    let (mut round, mut curly) = (0i32, 0i32);
    for (at, &byte) in code.iter().enumerate() {
        match byte {
            b'(' | b'[' => round += 1,
            b')' | b']' => round -= 1,
            b'{' => curly += 1,
            b'}' => {
                curly -= 1;
                if curly == 0 && round == 0 {
                    return Some(at);
                }
            }
            b';' if curly == 0 && round == 0 => return None,
            _ => {}
        }
    }
    None
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Keeps every byte that is code and every line break; the rest becomes spaces.
fn blank_comments_and_literals(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let length = hidden_length(bytes, at);
        if length == 0 {
            out.push(bytes[at]);
            at += 1;
        } else {
            out.extend(bytes[at..at + length].iter().map(|&b| if b == b'\n' { b'\n' } else { b' ' }));
            at += length;
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// How many bytes from `at` are a comment or a literal; 0 where code is.
fn hidden_length(bytes: &[u8], at: usize) -> usize {
    let rest = &bytes[at..];
    let after_word = at > 0 && is_word(bytes[at - 1]);
    if rest.starts_with(b"//") {
        return rest.iter().position(|&b| b == b'\n').unwrap_or(rest.len());
    }
    if rest.starts_with(b"/*") {
        return block_comment(rest);
    }
    match rest[0] {
        b'"' => quoted(rest, 0),
        b'r' if !after_word => raw(rest, 1),
        b'b' | b'c' if !after_word && rest.get(1) == Some(&b'"') => quoted(rest, 1),
        b'b' if !after_word && rest.get(1) == Some(&b'r') => raw(rest, 2),
        b'b' if !after_word && rest.get(1) == Some(&b'\'') => 1 + character(&rest[1..]),
        b'\'' => character(rest),
        _ => 0,
    }
}

fn block_comment(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        if rest[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    rest.len()
}

/// A string whose opening quote is at `open`.
fn quoted(rest: &[u8], open: usize) -> usize {
    let mut at = open + 1;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// A raw string whose hashes or quote begin at `from`; 0 where it is an identifier.
fn raw(rest: &[u8], from: usize) -> usize {
    let hashes = rest[from.min(rest.len())..].iter().take_while(|&&b| b == b'#').count();
    if rest.get(from + hashes) != Some(&b'"') {
        return 0;
    }
    let mut close = vec![b'"'];
    close.resize(1 + hashes, b'#');
    let body = from + hashes + 1;
    rest[body..].windows(close.len()).position(|window| window == close).map_or(rest.len(), |p| body + p + close.len())
}

/// A character literal; 0 where the quote begins a lifetime.
fn character(rest: &[u8]) -> usize {
    if rest.get(1) == Some(&b'\\') {
        return rest.iter().skip(3).position(|&b| b == b'\'').map_or(0, |p| p + 4);
    }
    (2..=5)
        .find(|&end| rest.get(end) == Some(&b'\''))
        .filter(|&end| end == 2 || rest[1] >= 0x80)
        .map_or(0, |end| end + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hides_comments_and_literals_and_nothing_else() {
        let code = |text: &str| Source::new(text.to_owned()).code;
        assert_eq!(code("a // b\nc"), "a     \nc");
        assert_eq!(code("a /* b /* c */ d */ e"), "a                   e");
        assert_eq!(code(r#"f("x\"y", 'z', '\'', b'"', b"q")"#), "f(      ,    ,     ,     ,     )");
        assert_eq!(code(r##"f(r"a", r#"b"c"#, br"d")"##), "f(    ,         ,      )");
        assert_eq!(code("fn f<'a>(x: &'a str) -> Raw { r }"), "fn f<'a>(x: &'a str) -> Raw { r }");
    }

    #[test]
    fn measures_functions_outside_of_tests() {
        let source = Source::new(
            "trait T {\n    fn none(&self);\n}\nfn one() -> [u8; 2] {\n    g(|| { 1 });\n    [0; 2]\n}\n\
             #[cfg(test)]\nmod tests {\n    fn hidden() {}\n}\n"
                .to_owned(),
        );
        let functions: Vec<_> = source.functions().into_iter().map(|f| (f.name, f.lines)).collect();
        assert_eq!(functions, [("one".to_owned(), 4)]);
    }

    #[test]
    fn finds_declared_modules() {
        let source = Source::new("mod a;\npub mod b;\nmod c {}\n#[path = \"x.rs\"]\nmod d;\n// mod e;\n".to_owned());
        let expected = [("a", None), ("b", None), ("d", Some("x.rs"))];
        assert_eq!(source.declared_modules(), expected.map(|(n, p)| (n.to_owned(), p.map(str::to_owned))));
    }
}
