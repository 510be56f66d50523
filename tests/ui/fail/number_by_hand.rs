// catalogue by-hand
fn main() {
    drop(distlock::LockManager::in_memory().lock(7));
}
