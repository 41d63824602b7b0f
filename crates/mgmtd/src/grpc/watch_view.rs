//! The cluster as it is now and after each change.

use std::pin::Pin;

use cluster::event::Event;
use control::proto::{GetViewRequest, ViewUpdate};
use control::server::PeerInfo;
use control::{View, convert};
use telemetry::metrics::Gauge;
use tokio::sync::watch;
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Status};

use super::ManagementService;

pub(crate) type Updates = Pin<Box<dyn Stream<Item = Result<ViewUpdate, Status>> + Send>>;

pub(super) async fn handle(service: &ManagementService, request: Request<GetViewRequest>) -> Result<Updates, Status> {
    if let Some(peer) = request.extensions().get::<PeerInfo>() {
        tracing::debug!(address = %peer.address, name = peer.name, "watches the cluster map");
    }
    let seen = request.get_ref().seen.as_ref().map(convert::seen_from).unwrap_or_default();
    let before = service.views.borrow().map.epoch;
    let (_, view) = service.apply(Event::Seen(seen)).await?;
    if seen.epoch > before {
        let (before, now) = (before.0, view.map.epoch.0);
        tracing::warn!(seen = seen.epoch.0, before, now, "this store is older than the cluster: there was a newer map");
    }
    // One update waits at most: a slow subscriber gets fewer and newer ones.
    let (sender, updates) = tokio::sync::mpsc::channel(1);
    let subscriber = Subscriber::new(service, request.get_ref());
    tokio::spawn(subscriber.run(sender));
    Ok(Box::pin(ReceiverStream::new(updates)))
}

struct Subscriber {
    views: watch::Receiver<View>,
    stopped: watch::Receiver<bool>,
    takes_changes: bool,
    without_space: bool,
    /// What it was told, or knew before.
    known: View,
    count: Gauge,
}

impl Subscriber {
    fn new(service: &ManagementService, request: &GetViewRequest) -> Self {
        let count = service.metrics.subscribers.clone();
        count.inc();
        let (takes_changes, without_space) = (request.takes_changes, request.without_space);
        let known = if takes_changes { service.known(request.known.as_ref()) } else { View::default() };
        let (views, stopped) = (service.views.clone(), service.stopped.clone());
        Self { views, stopped, takes_changes, without_space, known, count }
    }

    async fn run(mut self, sender: tokio::sync::mpsc::Sender<Result<ViewUpdate, Status>>) {
        loop {
            if let Some(update) = self.update()
                && sender.send(Ok(update)).await.is_err()
            {
                return;
            }
            tokio::select! {
                changed = self.views.changed() => if changed.is_err() { return },
                _ = self.stopped.wait_for(|stop| *stop) => return,
                () = sender.closed() => return,
            }
        }
    }

    /// What has changed since the last one; `None` where nothing has that it wants to know.
    fn update(&mut self) -> Option<ViewUpdate> {
        let view = self.views.borrow_and_update().clone();
        let mut update =
            if self.takes_changes { view.to_changes_since(&self.known) } else { view.to_update_since(&self.known) };
        if self.without_space {
            update.capacities.clear();
        }
        self.known = view;
        let is_empty = update.map.is_empty() && update.changes.is_empty() && update.capacities.is_empty();
        (!is_empty).then_some(update)
    }
}

impl Drop for Subscriber {
    fn drop(&mut self) {
        self.count.dec();
    }
}

#[cfg(test)]
mod tests {
    use cluster::map::ClusterMap;
    use types::id::Epoch;

    use super::*;

    fn view(epoch: u64) -> View {
        let mut map = ClusterMap::empty("c".into());
        map.epoch = Epoch(epoch);
        View::new(map, std::sync::Arc::default())
    }

    fn subscriber(takes_changes: bool) -> (watch::Sender<View>, Subscriber) {
        let (sender, views) = watch::channel(view(1));
        let stopped = watch::channel(false).1;
        let (known, count) = (View::default(), Gauge::default());
        (sender, Subscriber { views, stopped, takes_changes, without_space: true, known, count })
    }

    #[test]
    fn who_takes_changes_is_sent_the_whole_once() {
        for takes_changes in [true, false] {
            let (sender, mut subscriber) = subscriber(takes_changes);
            assert!(!subscriber.update().expect("all is new").map.is_empty());
            assert!(subscriber.update().is_none(), "nothing has changed");
            sender.send(view(2)).expect("it listens");
            let update = subscriber.update().expect("a change");
            assert_eq!((update.map.is_empty(), update.changes.is_empty()), (takes_changes, !takes_changes));
        }
    }
}
