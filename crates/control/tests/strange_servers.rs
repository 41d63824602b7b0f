//! What a caller is told when something other than its mgmtd listens there.

use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use cluster::map::ClusterMap;
use control::proto::{self, management_server::Management};
use control::{Agent, AgentConfig, Client, ControlError, View};
use net::handshake::{Responder, drive_blocking};
use net::{ClusterKey, Identity};
use tonic::{Request, Response, Status};
use types::id::Epoch;

fn identity() -> Identity {
    Identity { incarnation: 1, ..Identity::new(ClusterKey::from_bytes([7; 32]), "test") }
}

/// Serves one connection with `serve`.
fn server(serve: impl FnOnce(TcpStream) + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    thread::spawn(move || serve(listener.accept().expect("a caller").0));
    address
}

fn failure(address: SocketAddr, patience: Duration) -> ControlError {
    let runtime = telemetry::runtime::current_thread().expect("a runtime");
    let result = runtime.block_on(Client::connect(&address.to_string(), &identity(), patience));
    result.expect_err("connected to a strange server")
}

#[test]
fn another_version_is_named_with_the_remedy() {
    let address = server(|mut stream| {
        let mut newer = Responder::with_versions(&identity(), (90, 99));
        let _ = drive_blocking(&mut newer, &mut stream);
    });
    let error = failure(address, Duration::from_secs(5));
    assert!(error.is_permanent());
    let text = error.to_string();
    assert!(text.contains("versions 90 to 99") && text.contains("upgrade the older one"), "{text}");
}

#[test]
fn a_server_of_another_kind_is_no_mgmtd() {
    let address = server(|mut stream| {
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n");
        thread::sleep(Duration::from_secs(2));
    });
    let error = failure(address, Duration::from_secs(5));
    assert!(error.is_permanent() && error.to_string().contains("does not speak Weft"), "{error}");
}

#[test]
fn a_server_that_says_nothing_takes_no_longer_than_the_patience() {
    let address = server(|stream| {
        thread::sleep(Duration::from_secs(5));
        drop(stream);
    });
    let started = Instant::now();
    let error = failure(address, Duration::from_millis(300));
    assert!(started.elapsed() < Duration::from_secs(3));
    assert!(!error.is_permanent());
    assert!(error.to_string().contains("did not answer within 300 ms"), "{error}");
}

/// A mgmtd whose maps have more in them than this release knows: changes never come to what it says.
struct Newer;

type Answered<T> = Result<Response<T>, Status>;

fn unasked<T>() -> Answered<T> {
    Err(Status::unimplemented("nobody asks for it"))
}

/// So many nodes' worth of map that changes are less than all of it.
fn view(epoch: u64) -> View {
    let deleted_groups = (0..100).map(types::id::GroupId).collect();
    View::new(ClusterMap { epoch: Epoch(epoch), deleted_groups, ..ClusterMap::empty("c".into()) }, Arc::default())
}

#[tonic::async_trait]
impl Management for Newer {
    type WatchViewStream = tokio_stream::wrappers::ReceiverStream<Result<proto::ViewUpdate, Status>>;

    async fn watch_view(&self, request: Request<proto::GetViewRequest>) -> Answered<Self::WatchViewStream> {
        let (sender, updates) = tokio::sync::mpsc::channel(2);
        if request.get_ref().takes_changes {
            let changes = view(2).to_changes_since(&view(1));
            assert!(!changes.changes.is_empty());
            let changes = proto::ViewUpdate { check: changes.check ^ 1, ..changes };
            sender.send(Ok(view(1).to_update())).await.expect("there is room");
            sender.send(Ok(changes)).await.expect("there is room");
        } else {
            assert_eq!(request.get_ref().known, None);
            sender.send(Ok(view(2).to_update())).await.expect("there is room");
        }
        // Its end would be that of the stream.
        tokio::spawn(async move { sender.closed().await });
        Ok(Response::new(updates.into()))
    }

    async fn register_client(&self, _: Request<proto::RegisterClientRequest>) -> Answered<proto::RegisterClientReply> {
        Ok(Response::new(proto::RegisterClientReply { session: 1 }))
    }

    async fn register_node(&self, _: Request<proto::RegisterNodeRequest>) -> Answered<proto::RegisterNodeReply> {
        unasked()
    }

    async fn heartbeat(&self, _: Request<proto::HeartbeatRequest>) -> Answered<proto::HeartbeatReply> {
        unasked()
    }

    async fn get_view(&self, _: Request<proto::GetViewRequest>) -> Answered<proto::ViewUpdate> {
        unasked()
    }

    async fn set_alias(&self, _: Request<proto::SetAliasRequest>) -> Answered<proto::Done> {
        unasked()
    }

    async fn create_pool(&self, _: Request<proto::CreatePoolRequest>) -> Answered<proto::CreatePoolReply> {
        unasked()
    }

    async fn remove_pool(&self, _: Request<proto::RemovePoolRequest>) -> Answered<proto::Done> {
        unasked()
    }

    async fn assign_pool(&self, _: Request<proto::AssignPoolRequest>) -> Answered<proto::Done> {
        unasked()
    }

    async fn set_target_state(&self, _: Request<proto::SetTargetStateRequest>) -> Answered<proto::SetTargetStateReply> {
        unasked()
    }

    async fn delete_target(&self, _: Request<proto::DeleteTargetRequest>) -> Answered<proto::DeleteReply> {
        unasked()
    }

    async fn delete_node(&self, _: Request<proto::DeleteNodeRequest>) -> Answered<proto::DeleteReply> {
        unasked()
    }
}

#[test]
fn whoever_is_told_changes_that_do_not_fit_asks_for_whole_maps() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let management = listener.local_addr().expect("bound").to_string();
    listener.set_nonblocking(true).expect("a socket");
    thread::spawn(move || {
        telemetry::runtime::current_thread().expect("a runtime").block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener).expect("a runtime");
            let identity = Identity { cluster: "c".into(), ..identity() };
            let incoming = control::server::incoming(listener, identity);
            let server = tonic::transport::Server::builder();
            server.serve_with_incoming(control::server::service(Newer), incoming).await.expect("it serves");
        });
    });
    let config = AgentConfig { management, identity: identity(), rails: None };
    let epochs = Arc::new(std::sync::Mutex::new(Vec::new()));
    let told = Arc::clone(&epochs);
    let on_update = Box::new(move |update| {
        if let control::Update::View(view) = update {
            told.lock().expect("no panic").push(view.map.epoch);
        }
    });
    let agent = Agent::start_client(config, "test", on_update).expect("a thread");
    let second = |known: &View| (known.map.epoch == Epoch(2)).then(|| known.clone());
    assert_eq!(agent.wait_view(Some(Duration::from_secs(10)), second), Ok(view(2)));
    // Its end waits for the callback, which is told after those who wait.
    drop(agent);
    assert_eq!(*epochs.lock().expect("no panic"), [1, 2].map(Epoch));
}
