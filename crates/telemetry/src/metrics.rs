//! The registry of one process, and the handles that it gives out.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prometheus_client::encoding::EncodeLabelValue;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

pub use prometheus_client::metrics::counter::Counter;
pub use prometheus_client::metrics::gauge::Gauge;

pub use crate::histogram::Histogram;
use crate::names::{Def, Kind};
use crate::process::ProcessCollector;

/// A count as the value of a gauge; the greatest value there is where it is beyond that.
pub fn level<N>(count: N) -> i64
where
    i64: TryFrom<N>,
{
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// All metrics of one process. Clones share the same registry. Ask for handles at start and keep them: a handle is an
/// atomic, while asking takes a lock.
#[derive(Clone)]
pub struct Metrics(Arc<Mutex<Inner>>);

struct Inner {
    registry: Registry,
    families: BTreeMap<&'static str, AnyFamily>,
    before_text: Vec<Hook>,
}

type Hook = Arc<dyn Fn() + Send + Sync>;
type Labels = Vec<(&'static str, String)>;

#[derive(Clone)]
enum AnyFamily {
    Counter(Family<Labels, Counter>),
    Gauge(Family<Labels, Gauge>),
    Histogram(Family<Labels, Histogram, fn() -> Histogram>),
}

impl Metrics {
    /// `service` becomes a label of every metric.
    #[must_use]
    pub fn new(service: &str) -> Self {
        let labels = [("service".into(), service.to_owned().into())];
        let mut registry = Registry::with_labels(labels.into_iter());
        registry.register_collector(Box::new(ProcessCollector));
        Self(Arc::new(Mutex::new(Inner { registry, families: BTreeMap::new(), before_text: Vec::new() })))
    }

    /// The counter of `def` with these label values; the same one each time.
    ///
    /// # Panics
    /// If `def` is of another kind or has another number of labels: a programmer's error.
    #[must_use]
    pub fn counter(&self, def: &Def, values: &[&str]) -> Counter {
        match self.family(def) {
            AnyFamily::Counter(family) => family.get_or_create_owned(&labels(def, values)),
            AnyFamily::Gauge(_) | AnyFamily::Histogram(_) => panic!("{} is no counter", def.name),
        }
    }

    /// The gauge of `def` with these label values; the same one each time.
    ///
    /// # Panics
    /// As [`Metrics::counter`].
    #[must_use]
    pub fn gauge(&self, def: &Def, values: &[&str]) -> Gauge {
        match self.family(def) {
            AnyFamily::Gauge(family) => family.get_or_create_owned(&labels(def, values)),
            AnyFamily::Counter(_) | AnyFamily::Histogram(_) => panic!("{} is no gauge", def.name),
        }
    }

    /// The histogram of `def` with these label values; the same one each time.
    ///
    /// # Panics
    /// As [`Metrics::counter`].
    #[must_use]
    pub fn histogram(&self, def: &Def, values: &[&str]) -> Histogram {
        match self.family(def) {
            AnyFamily::Histogram(family) => family.get_or_create_owned(&labels(def, values)),
            AnyFamily::Counter(_) | AnyFamily::Gauge(_) => panic!("{} is no histogram", def.name),
        }
    }

    /// `hook` is called each time before the values are shown: for what changes with time alone.
    pub fn before_text(&self, hook: impl Fn() + Send + Sync + 'static) {
        self.lock().before_text.push(Arc::new(hook));
    }

    /// All values in the OpenMetrics text format, which Prometheus reads.
    #[must_use]
    pub fn text(&self) -> String {
        let hooks = self.lock().before_text.clone();
        hooks.iter().for_each(|hook| hook());
        let mut text = String::new();
        encode(&mut text, &self.lock().registry).expect("writing to a string cannot fail");
        text
    }

    fn family(&self, def: &Def) -> AnyFamily {
        let Inner { registry, families, .. } = &mut *self.lock();
        families.entry(def.name).or_insert_with(|| AnyFamily::register(def, registry)).clone()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panic of another thread while it held the lock leaves at worst one metric unregistered.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl AnyFamily {
    fn register(def: &Def, registry: &mut Registry) -> Self {
        match def.kind {
            Kind::Counter => {
                let family = Family::default();
                registry.register(def.name, def.help, family.clone());
                Self::Counter(family)
            }
            Kind::Gauge => {
                let family = Family::default();
                registry.register(def.name, def.help, family.clone());
                Self::Gauge(family)
            }
            Kind::Seconds => Self::histogram(def, registry, Histogram::seconds),
            Kind::Sizes => Self::histogram(def, registry, Histogram::sizes),
        }
    }

    fn histogram(def: &Def, registry: &mut Registry, make: fn() -> Histogram) -> Self {
        let family = Family::new_with_constructor(make);
        registry.register(def.name, def.help, family.clone());
        Self::Histogram(family)
    }
}

fn labels(def: &Def, values: &[&str]) -> Labels
where
    String: EncodeLabelValue,
{
    assert_eq!(def.labels.len(), values.len(), "{} has the labels {:?}", def.name, def.labels);
    def.labels.iter().copied().zip(values.iter().map(|&value| value.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::names;

    #[test]
    fn text_shows_counters_gauges_and_cumulative_histograms() {
        let metrics = Metrics::new("test");
        metrics.counter(&names::READ_BYTES, &["7"]).inc_by(4096);
        metrics.counter(&names::READ_BYTES, &["7"]).inc();
        metrics.gauge(&names::CONNECTIONS, &[]).set(3);
        let latency = metrics.histogram(&names::REQUEST_SECONDS, &["create"]);
        latency.observe(Duration::from_micros(15));
        latency.observe(Duration::from_secs(60));
        let connections = metrics.gauge(&names::CONNECTIONS, &[]);
        metrics.before_text(move || {
            connections.inc();
        });
        let text = metrics.text();
        for line in [
            r#"weft_read_bytes_total{service="test",target="7"} 4097"#,
            r#"weft_connections{service="test"} 4"#,
            r#"weft_request_seconds_bucket{service="test",le="0.00002",op="create"} 1"#,
            r#"weft_request_seconds_bucket{service="test",le="+Inf",op="create"} 2"#,
            r#"weft_request_seconds_count{service="test",op="create"} 2"#,
            "process_resident_memory_bytes",
        ] {
            assert!(text.contains(line), "no {line} in\n{text}");
        }
    }

    #[test]
    fn every_defined_metric_can_be_registered() {
        let metrics = Metrics::new("test");
        for def in names::ALL {
            let values = vec!["x"; def.labels.len()];
            match def.kind {
                Kind::Counter => drop(metrics.counter(def, &values)),
                Kind::Gauge => drop(metrics.gauge(def, &values)),
                Kind::Seconds | Kind::Sizes => drop(metrics.histogram(def, &values)),
            }
            assert!(metrics.text().contains(def.name));
        }
    }
}
