// catalogue set-option
distlock::lock_set! { pub Locks { namspace = "billing" } }

fn main() {}
