//! Errors for requests that are not valid HTTP: hyper answers them with a bare status and has no hook for
//! a body. Its answer is recognised on its way out and gets a body.
//!
//! Only bytes that are written while a head is still being read can be such an answer, and only one
//! without our request id is; everything else passes untouched.

use bytes::Bytes;

/// A complete answer instead of hyper's bare one, if `written` is one.
pub fn answer(written: &[u8]) -> Option<Bytes> {
    let head = std::str::from_utf8(written).ok()?;
    let status_line = head.lines().next()?.strip_prefix("HTTP/1.")?;
    let status: u16 = status_line.get(2..5)?.parse().ok()?;
    if !(400..500).contains(&status) || head.to_ascii_lowercase().contains("x-request-id") {
        return None;
    }
    let message = match status {
        414 => "The request's path is too long.",
        431 => "The request's head is too large.",
        _ => "Invalid HTTP message.",
    };
    let body = format!(
        "{{\n  \"code\": {status},\n  \"type\": \"BadRequestException\",\n  \"message\": \"{message}\"\n}}\n"
    );
    let answer = format!(
        "HTTP/1.{status_line}\r\nContent-Type: application/json\r\nX-Content-Type-Options: nosniff\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    Some(Bytes::from(answer))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_answer_gets_a_body() {
        let bare = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
        let text = String::from_utf8(answer(bare).unwrap().to_vec()).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{head}");
        let expected = "{\n  \"code\": 400,\n  \"type\": \"BadRequestException\",\n  \"message\": \"Invalid HTTP message.\"\n}\n";
        assert_eq!(body, expected);
    }

    #[test]
    fn our_own_answers_and_bodies_pass_untouched() {
        assert!(answer(b"HTTP/1.1 404 Not Found\r\nX-Request-Id: 1\r\n\r\n").is_none());
        assert!(answer(b"HTTP/1.1 200 OK\r\n\r\n").is_none());
        assert!(answer(b"HTTP/1.1 100 Continue\r\n\r\n").is_none());
        assert!(answer(b"{\"any\": \"body\"}").is_none());
        assert!(answer(b"").is_none());
    }
}
