//! A store that refuses a write, and the shard going on when it takes writes again. A test binary of its own: the limit on
//! file sizes, which stands in for a full disk without needing root, is the whole process's.

use std::pin::Pin;
use std::sync::Mutex;
use std::time::Duration;

use kv::rocks::RocksConfig;
use metad::local::{LocalConfig, LocalShard};
use net::{CallError, ClusterKey, Connection, Identity, Limits};
use types::attr::SetAttr;
use types::cred::Conditions;
use types::id::{InodeId, SessionId};
use types::name::Name;
use wire::codec::Bytes;
use wire::frame::Status;
use wire::v1::meta::{Close, Exactly, Fsync, GetAttr, GetXattr, Lookup, Open, Set, SetXattr, Symlink};
use wire::v1::session::SessionOpen;

/// The limit is for one test at a time.
static LIMIT: Mutex<()> = Mutex::new(());

fn limit_file_size(bytes: u64) {
    let limit = libc::rlimit { rlim_cur: bytes, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: `setrlimit` reads the struct and keeps no pointer to it; `signal` only sets a disposition.
    let result = unsafe {
        // Without this the process would be killed rather than get `EFBIG`.
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
        libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit)
    };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}

#[test]
fn a_refused_batch_changes_nothing_and_the_shard_recovers_by_itself() {
    let _alone = LIMIT.lock();
    let dir = tempfile::tempdir().expect("a directory");
    let key = ClusterKey::from_bytes([7; 32]);
    let mut config = LocalConfig::new(dir.path(), key.clone());
    config.rocks = RocksConfig::small();
    let shard = LocalShard::start(&config).expect("starts");
    let mut ring = ring::Ring::new(&ring::Config::default()).expect("a ring");
    ring.run(async {
        let identity = Identity::new(key, "test");
        let connection = Connection::connect(shard.address(), &identity, &Limits::default()).await.expect("connects");
        let open = SessionOpen::asking(SessionId(1), Vec::new(), 0, 1);
        connection.call(shard.to(), &open).await.expect("a session");
        let mut sequence = 0;
        let mut exactly = || {
            sequence += 1;
            Exactly { sequence, answered_below: sequence }
        };
        let mut fill = |name: String| {
            let value = Bytes(vec![7; 8000]);
            SetXattr {
                exactly: exactly(),
                inode: InodeId::ROOT,
                name: Bytes(name.into_bytes()),
                value,
                flags: 0,
                given: Conditions::default(),
            }
        };

        limit_file_size(100_000);
        let mut refused = None;
        for n in 0..100 {
            if let Err(error) = connection.call(shard.to(), &fill(format!("user.fill{n}"))).await {
                refused = Some((n, error));
                break;
            }
        }
        let (n, error) = refused.expect("the limit is met");
        assert!(n > 0 && matches!(error, CallError::Status(Status::Errno(_))), "{n} {error}");
        let get = |n: usize| GetXattr { inode: InodeId::ROOT, name: Bytes(format!("user.fill{n}").into_bytes()) };
        // Also when the shard has looked whether it can go on, which it does each second.
        for _ in 0..50 {
            connection.call(shard.to(), &get(n - 1)).await.expect("reads go on");
            ring::sleep(Duration::from_millis(50)).await;
        }
        assert!(connection.call(shard.to(), &get(n)).await.is_err(), "what was refused did not happen");
        assert!(connection.call(shard.to(), &fill("user.again".into())).await.is_err(), "no writes yet");
        assert!(!shard.takes_changes(), "as all are told, so that new directories are made elsewhere");

        limit_file_size(libc::RLIM_INFINITY);
        let mut recovered = false;
        for _ in 0..300 {
            recovered = connection.call(shard.to(), &fill("user.again".into())).await.is_ok();
            if recovered {
                break;
            }
            ring::sleep(Duration::from_millis(50)).await;
        }
        assert!(recovered, "the shard does not recover");
        for _ in 0..300 {
            if shard.takes_changes() {
                break;
            }
            ring::sleep(Duration::from_millis(50)).await;
        }
        assert!(shard.takes_changes());
        assert!(connection.call(shard.to(), &get(n - 1)).await.is_ok(), "what was answered is there");
        assert!(connection.call(shard.to(), &get(n)).await.is_err(), "what was refused is not");
        let link = Symlink {
            exactly: Exactly { sequence: 1000, answered_below: 1000 },
            parent: InodeId::ROOT,
            name: Name::new(b"link").expect("a name"),
            target: Bytes(b"x".to_vec()),
            cred: types::cred::Credentials::default(),
        };
        connection.call(shard.to(), &link).await.expect("made");
        let lookup = Lookup { parent: InodeId::ROOT, name: link.name.clone() };
        assert!(connection.call(shard.to(), &lookup).await.is_ok_and(|looked| looked.found.is_some()));
        assert!(connection.call(shard.to(), &Fsync { inode: InodeId::ROOT, inline: false }).await.is_ok());
    });
    shard.stop().expect("stops in order");
}

type Asked<'a> = Pin<Box<dyn Future<Output = Result<(), CallError>> + 'a>>;

/// Asked in one go with what cannot be written.
#[test]
fn a_refused_batch_is_an_error_for_those_alone_who_have_changed_something_in_it() {
    let _alone = LIMIT.lock();
    let dir = tempfile::tempdir().expect("a directory");
    let key = ClusterKey::from_bytes([7; 32]);
    let mut config = LocalConfig::new(dir.path(), key.clone());
    config.rocks = RocksConfig::small();
    let shard = LocalShard::start(&config).expect("starts");
    let mut ring = ring::Ring::new(&ring::Config::default()).expect("a ring");
    ring.run(async {
        let identity = Identity::new(key, "test");
        let connection = Connection::connect(shard.address(), &identity, &Limits::default()).await.expect("connects");
        let to = shard.to();
        connection.call(to, &SessionOpen::asking(SessionId(1), Vec::new(), 0, 1)).await.expect("a session");
        let fill = |sequence: u64| SetXattr {
            exactly: Exactly { sequence, answered_below: 1 },
            inode: InodeId::ROOT,
            name: Bytes(format!("user.fill{sequence}").into_bytes()),
            value: Bytes(vec![7; 8000]),
            flags: 0,
            given: Conditions::default(),
        };
        let lookup = Lookup { parent: InodeId::ROOT, name: Name::new(b"absent").expect("a name") };
        connection.call(to, &fill(1)).await.expect("there is room");
        limit_file_size(50_000);
        let (mut refused, mut asked_again) = (0, 0);
        for sequence in 2..200 {
            let calls: [Asked<'_>; 3] = [
                Box::pin(async { connection.call(to, &fill(sequence)).await.map(drop) }),
                Box::pin(async { connection.call(to, &fill(1)).await.map(drop) }),
                Box::pin(async { connection.call(to, &lookup).await.map(drop) }),
            ];
            let [new, strangers @ ..] = &ring::join_all(calls).await[..] else { unreachable!("as many answers") };
            refused += u64::from(matches!(new, Err(CallError::Status(Status::Errno(_)))));
            for stranger in strangers {
                assert!(matches!(stranger, Ok(()) | Err(CallError::Status(Status::Busy))), "{sequence} {stranger:?}");
                asked_again += u64::from(stranger.is_err());
            }
        }
        limit_file_size(libc::RLIM_INFINITY);
        assert!(refused > 0 && asked_again > 0, "{refused} {asked_again}");
    });
    shard.stop().expect("stops in order");
}

/// Where nobody makes room, the store stays as it is.
#[test]
fn a_store_that_takes_nothing_is_read_by_old_and_new_clients_whatever_others_want_to_change() {
    let _alone = LIMIT.lock();
    let dir = tempfile::tempdir().expect("a directory");
    let key = ClusterKey::from_bytes([7; 32]);
    let mut config = LocalConfig::new(dir.path(), key.clone());
    (config.rocks, config.reserve_bytes) = (RocksConfig::small(), u64::MAX);
    let shard = LocalShard::start(&config).expect("starts");
    let mut ring = ring::Ring::new(&ring::Config::default()).expect("a ring");
    ring.run(async {
        let connect = async |session: u64| {
            let identity = Identity::new(key.clone(), "test");
            let connection = Connection::connect(shard.address(), &identity, &Limits::default()).await;
            let connection = connection.expect("connects");
            let open = SessionOpen::asking(SessionId(session), Vec::new(), 0, 1);
            connection.call(shard.to(), &open).await.expect("a session");
            connection
        };
        let to = shard.to();
        let one = connect(1).await;
        // Let the shard see that it has no room.
        ring::sleep(Duration::from_millis(200)).await;
        let set = |sequence: u64| Set {
            exactly: Exactly { sequence, answered_below: sequence },
            inode: InodeId::ROOT,
            change: SetAttr { mode: Some(0o700 + sequence as u32 % 8), ..SetAttr::default() },
            inline: false,
            given: Conditions::default(),
        };
        limit_file_size(50_000);
        let mut sequence = 1;
        while one.call(to, &set(sequence)).await.is_ok() {
            sequence += 1;
            assert!(sequence < 5000, "the limit is met");
        }
        let two = connect(2).await;
        let attr = GetAttr { inode: InodeId::ROOT };
        for _ in 0..100 {
            sequence += 1;
            let calls: [Asked<'_>; 4] = [
                Box::pin(async { one.call(to, &set(sequence)).await.map(drop) }),
                Box::pin(async { two.call(to, &set(1)).await.map(drop) }),
                Box::pin(async { one.call(to, &attr).await.map(drop) }),
                Box::pin(async { two.call(to, &attr).await.map(drop) }),
            ];
            let [changes @ .., own, others] = &ring::join_all(calls).await[..] else { unreachable!("as many answers") };
            let is_refused =
                |change: &Result<(), CallError>| matches!(change, Err(CallError::Status(Status::Errno(_))));
            assert!(changes.iter().all(is_refused), "{changes:?}");
            assert_eq!((own, others), (&Ok(()), &Ok(())));
        }
        two.call(to, &Open { inode: InodeId::ROOT, contents: false }).await.expect("opened");
        two.call(to, &Close { inode: InodeId::ROOT, read: None }).await.expect("closed");
        limit_file_size(libc::RLIM_INFINITY);
    });
    shard.kill().expect("ends");
}
