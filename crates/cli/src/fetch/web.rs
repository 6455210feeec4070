//! A plain file over HTTP. A download that broke is resumed with `Range` and `If-Range`; a server that
//! does not support them, or whose file has another ETag by now, sends the whole file.

use jitney_engine::store::{DownloadError, ResumeFrom};
use reqwest::header::{CONTENT_RANGE, ETAG, HeaderMap, IF_NONE_MATCH, IF_RANGE, RANGE};
use reqwest::{Client, Response, StatusCode, Url};

use super::client::error_chain;
use super::download::{DownloadBody, RemoteDownload, web_error};

/// Requests the file, or the rest of it.
pub fn open(
    client: &Client,
    url: Url,
    resume: Option<ResumeFrom<'_>>,
) -> impl Future<Output = Result<RemoteDownload, DownloadError>> + Send + use<> {
    let mut request = client.get(url);
    if let Some(ResumeFrom { bytes, tag }) = resume {
        request = request.header(RANGE, format!("bytes={bytes}-")).header(IF_RANGE, tag);
    }
    async { download(answered(request.send().await)?) }
}

/// Requests the file unless it is the one of this tag.
pub async fn changed(
    client: &Client,
    url: Url,
    tag: Option<String>,
) -> Result<Option<RemoteDownload>, DownloadError> {
    let mut request = client.get(url);
    if let Some(tag) = tag {
        request = request.header(IF_NONE_MATCH, tag);
    }
    let response = answered(request.send().await)?;
    if response.status() == StatusCode::NOT_MODIFIED {
        return Ok(None);
    }
    // A weak one will do: it says that the content means the same.
    let tag = response.headers().get(ETAG).and_then(|tag| tag.to_str().ok()).map(str::to_owned);
    Ok(Some(RemoteDownload { tag, ..download(response)? }))
}

fn answered(response: reqwest::Result<Response>) -> Result<Response, DownloadError> {
    let response = response.map_err(web_error)?;
    let status = response.status();
    let busy = [StatusCode::TOO_MANY_REQUESTS, StatusCode::REQUEST_TIMEOUT].contains(&status);
    match response.error_for_status() {
        Ok(response) => Ok(response),
        Err(error) => {
            let why = error_chain(&error.without_url());
            Err(DownloadError { why, transient: busy || status.is_server_error() })
        }
    }
}

fn download(response: Response) -> Result<RemoteDownload, DownloadError> {
    let (begins_at, bytes_total) = if response.status() == StatusCode::PARTIAL_CONTENT {
        let range = response.headers().get(CONTENT_RANGE).and_then(|value| value.to_str().ok());
        let unreadable = || DownloadError::permanent("the server sent an invalid Content-Range");
        range.and_then(content_range).ok_or_else(unreadable)?
    } else {
        (0, response.content_length())
    };
    let tag = strong_tag(response.headers());
    Ok(RemoteDownload { bytes_total, begins_at, tag, body: DownloadBody::Web(response) })
}

/// `bytes 4-9/10`: the first byte, and the total (`*`: not known).
fn content_range(text: &str) -> Option<(u64, Option<u64>)> {
    let (range, total) = text.strip_prefix("bytes ")?.split_once('/')?;
    let (first, _) = range.split_once('-')?;
    let total = if total == "*" { None } else { Some(total.parse().ok()?) };
    Some((first.parse().ok()?, total))
}

/// A weak tag (`W/"…"`) does not guarantee the same bytes.
fn strong_tag(headers: &HeaderMap) -> Option<String> {
    let tag = headers.get(ETAG)?.to_str().ok()?;
    tag.starts_with('"').then(|| tag.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_valid_ranges_are_read() {
        for (text, expected) in [
            ("bytes 4-9/10", Some((4, Some(10)))),
            ("bytes 4-9/*", Some((4, None))),
            ("bytes */10", None),
            ("bytes 4-9", None),
            ("items 4-9/10", None),
        ] {
            assert_eq!(content_range(text), expected, "{text}");
        }
    }
}
