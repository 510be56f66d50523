//! What the callers of a simulation lock: a shop that notices when two are in, and when a fencing token falls back.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use distlock::{Lease, LeaseHandle, LockManager};
use distlock_testkit::simulation::World;
use distlock_testkit::{EmbeddedServer, Event, Moment, Reply, check};
use tokio::time::sleep;

#[derive(Clone)]
pub(crate) struct Shop {
    pub(crate) server: Arc<EmbeddedServer>,
    world: World,
    exclusive: bool,
    rooms: Arc<Mutex<HashMap<String, Room>>>,
    events: Arc<Mutex<Vec<Event>>>,
}

/// What is known of one key.
#[derive(Default)]
struct Room {
    /// When each visitor came in, and its fencing token.
    visits: Vec<(Duration, u64)>,
    inside: Vec<(u64, LeaseHandle)>,
}

impl Shop {
    pub(crate) fn open(world: &World) -> Self {
        Self {
            server: Arc::new(EmbeddedServer::new()),
            world: world.clone(),
            exclusive: true,
            rooms: Arc::default(),
            events: Arc::default(),
        }
    }

    pub(crate) fn without_exclusion(world: &World) -> Self {
        Self { exclusive: false, ..Self::open(world) }
    }

    /// A process of its own, as far as locking can tell.
    pub(crate) async fn manager(&self) -> LockManager {
        let server = self.server.clone();
        let open = move || {
            let stream = server.connect();
            async move { Ok(stream) }
        };
        LockManager::builder().streams(open).lazy().build().await.unwrap()
    }

    /// Comes in with a lease that was asked for at `asked`. Whoever was in before that has a smaller token; a holder that
    /// was held up on the way may come in after its successor, which a resource tells by its smaller token.
    pub(crate) fn enter(&self, name: &str, lease: &Lease, asked: Duration) -> Visit<'_> {
        let (key, token) = (lease.key().to_owned(), lease.fencing_token());
        self.world.note(format_args!("{name} {key}: in with {token}"));
        let mut rooms = self.rooms.lock().unwrap();
        let room = rooms.entry(key.clone()).or_default();
        for (came, other) in &room.visits {
            assert_ne!(token, *other, "a fencing token was given out twice");
            assert!(token > *other || *came >= asked, "fencing token {token} after {other}");
        }
        room.visits.push((self.world.elapsed(), token));
        room.inside.push((token, lease.handle()));
        self.record(Event::Granted {
            lease: format!("{key}#{token}"),
            process: name.to_owned(),
            key: key.clone(),
            fencing: token,
            at: self.now(),
            valid_until: self.now() + lease.remaining(),
        });
        Visit { shop: self, key, token }
    }

    fn now(&self) -> Moment {
        Moment::from_nanos(u64::try_from(self.world.elapsed().as_nanos()).unwrap())
    }

    fn record(&self, event: Event) {
        self.events.lock().unwrap().push(event);
    }

    /// What the checker of histories says of all visits.
    pub(crate) fn assert_history_clean(&self) {
        if self.exclusive {
            let report = check(&self.events.lock().unwrap().drain(..).collect());
            assert!(report.grants() > 0, "nobody was in");
            report.assert_clean();
        }
    }

    /// How many lock keys the server holds.
    pub(crate) fn keys_left(&self) -> usize {
        match self.server.command(&["KEYS", "distlock:*"]).unwrap() {
            Reply::List(keys) => keys.len(),
            other => panic!("{other:?}"),
        }
    }
}

pub(crate) struct Visit<'a> {
    shop: &'a Shop,
    key: String,
    token: u64,
}

impl Visit<'_> {
    /// Works for so long, looking round at every step.
    pub(crate) async fn shop_for(&self, work: Duration) {
        let until = self.shop.world.elapsed() + work;
        self.look_round();
        while self.shop.world.elapsed() < until {
            sleep(self.shop.world.millis(1..50)).await;
            self.look_round();
        }
    }

    /// Nobody else may be in with a valid lease while ours is valid.
    fn look_round(&self) {
        let rooms = self.shop.rooms.lock().unwrap();
        let inside = &rooms[&self.key].inside;
        if let Some((_, lease)) = inside.iter().find(|(token, lease)| *token == self.token && lease.is_held()) {
            let (at, valid_until) = (self.shop.now(), self.shop.now() + lease.remaining());
            self.shop.record(Event::Extended { lease: format!("{}#{}", self.key, self.token), at, valid_until });
        }
        let valid: Vec<_> = inside.iter().filter(|(_, lease)| lease.is_held()).map(|(token, _)| token).collect();
        assert!(!self.shop.exclusive || valid.len() <= 1, "valid at the same time on `{}`: {valid:?}", self.key);
    }
}

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        if let Ok(mut rooms) = self.shop.rooms.lock()
            && let Some(room) = rooms.get_mut(&self.key)
        {
            room.inside.retain(|(token, _)| *token != self.token);
        }
        let ended = Event::Ended { lease: format!("{}#{}", self.key, self.token), at: self.shop.now() };
        if let Ok(mut events) = self.shop.events.lock() {
            events.push(ended);
        }
    }
}
