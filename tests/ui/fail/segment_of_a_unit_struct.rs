// catalogue segment-derive
use distlock::KeySegment;

#[derive(KeySegment)]
struct Nightly;

fn main() { drop(Nightly); }
