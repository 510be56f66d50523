// catalogue segment-closed
use distlock::KeySegment;

struct Weight(f64);

impl KeySegment for Weight {
    fn write_segment(&self, to: &mut dyn std::fmt::Write) -> std::fmt::Result { write!(to, "{}", self.0) }
}

fn main() { drop(Weight(1.0)); }
