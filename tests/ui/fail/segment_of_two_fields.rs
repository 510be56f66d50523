// catalogue segment-derive
use distlock::KeySegment;

#[derive(KeySegment)]
struct Seat { row: u8, place: u8 }

fn main() { drop(Seat { row: 1, place: 1 }); }
