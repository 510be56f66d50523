//! A job of an apalis worker under a lock: one at a time per key, however many the worker has taken.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use apalis_core::backend::TaskSink;
use apalis_core::backend::memory::MemoryStorage;
use apalis_core::task::data::Data;
use apalis_core::worker::builder::WorkerBuilder;
use apalis_core::worker::context::WorkerContext;
use apalis_core::worker::ext::parallelize::ParallelizeExt;
use distlock::{LockError, LockManager, distributed_lock};

const JOBS: u32 = 8;

struct Invoice {
    customer: u32,
    number: u32,
}

/// Who is at work, and who was.
#[derive(Default)]
struct Seen {
    now: BTreeMap<u32, u32>,
    most_of_one_customer: u32,
    most_customers: usize,
    done: Vec<u32>,
}

#[derive(Clone)]
struct Shop {
    locks: LockManager,
    seen: Arc<Mutex<Seen>>,
}

#[distributed_lock(key = "customer:{invoice.customer}", ttl = "5s", wait = "10s", manager = shop.locks)]
async fn send(invoice: Invoice, shop: Data<Shop>, worker: WorkerContext) -> Result<(), LockError> {
    {
        let mut seen = shop.seen.lock().unwrap();
        let Seen { now, most_of_one_customer, most_customers, .. } = &mut *seen;
        let of_this_one = now.entry(invoice.customer).or_default();
        *of_this_one += 1;
        *most_of_one_customer = (*most_of_one_customer).max(*of_this_one);
        *most_customers = (*most_customers).max(now.len());
    }
    // Long enough for every other job to be taken, were it not for the lock.
    tokio::time::sleep(Duration::from_millis(10)).await;
    let mut seen = shop.seen.lock().unwrap();
    seen.now.remove(&invoice.customer);
    seen.done.push(invoice.number);
    if seen.done.len() == JOBS as usize {
        worker.stop().unwrap();
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_job_is_alone_with_its_key() {
    let shop = Shop { locks: LockManager::in_memory(), seen: Arc::default() };
    let mut jobs = MemoryStorage::new();
    for number in 0..JOBS {
        jobs.push(Invoice { customer: number % 2, number }).await.unwrap();
    }
    let worker = WorkerBuilder::new("invoices").backend(jobs).data(shop.clone()).parallelize(tokio::spawn).build(send);
    worker.run().await.unwrap();
    let mut seen = shop.seen.lock().unwrap();
    assert_eq!((seen.most_of_one_customer, seen.most_customers), (1, 2));
    seen.done.sort_unstable();
    assert_eq!(seen.done, (0..JOBS).collect::<Vec<_>>());
}
