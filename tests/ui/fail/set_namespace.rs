// catalogue set-option
distlock::lock_set! { pub Locks { namespace = "billing eu" } }

fn main() {}
