//! Looks for lines of a head that end with a bare LF. hyper takes it for the end of a line and so do some proxies,
//! others do not: the same bytes would be different requests.

/// How far a head has come.
#[derive(Debug, Default)]
pub(super) struct HeadScan {
    last: u8,
    /// Bytes of the line at hand.
    length: usize,
    /// Whether its first line has come, before which empty ones may be.
    begun: bool,
    /// Whether the empty line has come; what follows is no head.
    over: bool,
}

impl HeadScan {
    /// Whether a line that ends in these bytes, which follow those that were given before, ends with a bare LF.
    pub(super) fn has_bare(&mut self, bytes: &[u8]) -> bool {
        for byte in bytes {
            if self.over {
                return false;
            }
            let last = std::mem::replace(&mut self.last, *byte);
            self.length += 1;
            if *byte == b'\n' {
                if last != b'\r' {
                    return true;
                }
                let empty = self.length == 2;
                self.over = empty && self.begun;
                self.begun |= !empty;
                self.length = 0;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_end_of_a_line_is_found_however_the_head_is_cut() {
        for (head, bare) in [
            ("GET / HTTP/1.1\r\nHost: x\r\n\r\nbody\nbody", false),
            ("\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n\n", false),
            ("\r\nGET / HTTP/1.1\nHost: x\r\n\r\n", true),
            ("GET / HTTP/1.1\nHost: x\n\n", true),
            ("GET / HTTP/1.1\r\nHost: x\nX: y\r\n\r\n", true),
            ("GET / HTTP/1.1\r\nHost: x\r\n\n", true),
        ] {
            for size in 1..=head.len() {
                let mut scan = HeadScan::default();
                let found = head.as_bytes().chunks(size).any(|piece| scan.has_bare(piece));
                assert_eq!(found, bare, "{head:?} by {size}");
            }
        }
    }
}
