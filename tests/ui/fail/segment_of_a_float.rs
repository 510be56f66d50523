// catalogue segment-derive
use distlock::KeySegment;

#[derive(KeySegment)]
struct Weight(f64);

fn main() { drop(Weight(1.0)); }
