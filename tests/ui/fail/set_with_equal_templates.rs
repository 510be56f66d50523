// catalogue set-twice
use distlock::LockKey;

distlock::lock_set! { Locks { namespace = "billing" } }

mod invoices {
    #[derive(distlock::LockKey)]
    #[lock(key = "invoice:{id}", set = crate::Locks)]
    pub struct InvoiceLock { pub id: u64 }
}

#[derive(LockKey)]
#[lock(key = "invoice:{number}", set = Locks)]
struct BillLock { number: u32 }

fn main() { drop((invoices::InvoiceLock { id: 1 }, BillLock { number: 1 })); }
