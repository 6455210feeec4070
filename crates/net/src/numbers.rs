//! Numbers as text, appended to bytes: in heads and log lines they cost less so than through a formatter.

/// Appends a number in three digits.
pub fn push_thousandths(line: &mut Vec<u8>, number: u32) {
    let digit = |of: u32| b'0' + (number / of % 10) as u8;
    line.extend_from_slice(&[digit(100), digit(10), digit(1)]);
}

/// Appends a number.
pub fn push_number(line: &mut Vec<u8>, mut number: u64) {
    let mut digits = [b'0'; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] += (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return line.extend_from_slice(&digits[at..]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_by_the_library() {
        for number in [0, 7, 10, 99, 100, 12_345, u64::MAX] {
            let mut line = b"x".to_vec();
            push_number(&mut line, number);
            assert_eq!(line, format!("x{number}").as_bytes());
        }
        for number in [0, 9, 42, 990] {
            let mut line = Vec::new();
            push_thousandths(&mut line, number);
            assert_eq!(line, format!("{number:03}").as_bytes());
        }
    }
}
