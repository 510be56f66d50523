// catalogue set-none
use distlock::LockKey;

struct Locks;

#[derive(LockKey)]
#[lock(key = "invoice:{id}", set = Locks)]
struct InvoiceLock { id: u64 }

fn main() { drop((Locks, InvoiceLock { id: 1 })); }
