//! The slots of a Redis Cluster: which one a name is in, and a short name for each.
//!
//! A cluster parts all names into 16384 slots by the CRC-16 of the name, or of its hash tag if it has one. A script runs
//! on the node of one slot and touches names of this slot alone.

use std::sync::LazyLock;

use crate::key::hash_tag;

/// How many slots a cluster has.
pub(crate) const SLOTS: u16 = 16_384;

/// The slot of a name.
pub(crate) fn slot_of(name: &str) -> u16 {
    crc16(hash_tag(name).unwrap_or(name).as_bytes()) % SLOTS
}

/// A hash tag for names in this slot: the smallest number whose digits are in it. The same in every version and process,
/// for the fencing counter of the slot is named by it.
pub(crate) fn tag_of(slot: u16) -> u32 {
    TAGS.get(usize::from(slot)).copied().unwrap_or_default()
}

/// Found by trying; all slots together take some milliseconds, once per process.
static TAGS: LazyLock<Box<[u32]>> = LazyLock::new(|| {
    let mut tags = vec![None; usize::from(SLOTS)];
    let mut missing = tags.len();
    for number in 0_u32.. {
        if missing == 0 {
            break;
        }
        let tag = &mut tags[usize::from(slot_of(&number.to_string()))];
        if tag.is_none() {
            *tag = Some(number);
            missing -= 1;
        }
    }
    tags.into_iter().flatten().collect()
});

/// CRC-16/XMODEM, as the cluster specification wants it.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| (crc << 8) ^ TABLE[usize::from((crc >> 8) as u8 ^ byte)])
}

static TABLE: [u16; 256] = {
    let mut table = [0; 256];
    let mut index = 0;
    while index < table.len() {
        let mut crc = (index as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 };
            bit += 1;
        }
        table[index] = crc;
        index += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_the_specification_s() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        // From `CLUSTER KEYSLOT`.
        for (name, slot) in [("", 0), ("foo", 12_182), ("{foo}bar", 12_182), ("x{foo}{bar}", 12_182), ("a{}b", 13_694)]
        {
            assert_eq!(slot_of(name), slot, "{name:?}");
        }
    }

    #[test]
    fn each_slot_has_a_short_tag_of_its_own() {
        for slot in 0..SLOTS {
            let tag = tag_of(slot);
            assert_eq!(slot_of(&format!("{{{tag}}}:billing:fence")), slot);
            assert!(tag < 1_000_000, "{tag}");
        }
        assert_eq!(TAGS.len(), usize::from(SLOTS));
        // Processes of other versions count on the same names: they never change.
        assert_eq!([tag_of(0), tag_of(1), tag_of(16_383)], [3_560, 22_179, 39_296]);
    }
}
