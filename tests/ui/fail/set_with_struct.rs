// catalogue set-option
distlock::lock_set! { pub struct Locks { namespace = "billing" } }

fn main() {}
