//! The code and the text of a failure over gRPC, as TorchServe's clients read them.
//!
//! A failure with a status that the handler chose has the code of that status, by TorchServe's rule.

use std::borrow::Cow;

use super::{ErrorCode, Problem};

/// Descriptions are sent as a header, and clients reject headers beyond a few KiB.
const DESCRIPTION_BYTES_MAX: usize = 2048;

impl Problem {
    /// The message as clients of Triton look for it: they know an unknown model by the first words.
    /// A version that is no number has a message of its own there, which stands before ours.
    pub(crate) fn for_triton(&self) -> Cow<'_, str> {
        if self.code == ErrorCode::VersionNotFound
            && let Some(rest) = self.message.strip_prefix("Model version: ")
            && let Some((version, _)) = rest.split_once(" does not exist")
            && version.parse::<u64>().is_err()
        {
            let why = "failed to get model version from specified version string";
            return Cow::Owned(format!("{why} '{version}': {}", self.message));
        }
        match (self.code, self.message.strip_prefix("Model not found: ")) {
            (ErrorCode::ModelNotFound, Some(name)) => {
                Cow::Owned(format!("Request for unknown model: '{name}' is not found"))
            }
            (ErrorCode::ModelNotFound, None) => {
                Cow::Owned(format!("Request for unknown model: {}", self.message))
            }
            _ => Cow::Borrowed(&self.message),
        }
    }

    /// The gRPC code: never that of success, whatever status a handler failed with.
    pub fn grpc_code(&self) -> u8 {
        let row = self.code.row();
        if self.status == row.status || self.status < 400 {
            return row.grpc;
        }
        grpc_code_of(self.status)
    }

    /// The message and, on lines of their own, TorchServe's class for it and the reason.
    pub fn description(&self) -> String {
        let row = self.code.row();
        let room = DESCRIPTION_BYTES_MAX.min(self.message.len());
        let message = &self.message[..self.message.floor_char_boundary(room)];
        let reason = self.reason.as_ref().map(|reason| format!("\n{reason}")).unwrap_or_default();
        format!("{message}\n{}.{}{reason}", row.package, row.kind)
    }
}

/// The gRPC code that goes with an HTTP status.
pub(crate) fn grpc_code_of(status: u16) -> u8 {
    match status {
        0..400 => 0,
        400 => 3,
        401 => 16,
        403 => 7,
        404 => 5,
        409 => 10,
        413 | 429 => 8,
        416 => 11,
        499 => 1,
        501 => 12,
        503 => 14,
        504 => 4,
        other if other < 500 => 9,
        _ => 13,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_is_the_tables_unless_the_handler_asked_for_a_status() {
        let mut problem = Problem::new(ErrorCode::Prediction, "Prediction failed");
        assert_eq!(problem.grpc_code(), 14);
        for (status, code) in [
            (200, 14),
            (400, 3),
            (404, 5),
            (409, 10),
            (413, 8),
            (418, 9),
            (429, 8),
            (499, 1),
            (500, 13),
            (501, 12),
            (504, 4),
            (599, 13),
        ] {
            problem.status = status;
            assert_eq!(problem.grpc_code(), code, "{status}");
        }
    }

    #[test]
    fn the_description_names_the_class() {
        for (code, class) in [
            (ErrorCode::ModelNotFound, "org.pytorch.serve.archive.model.ModelNotFoundException"),
            (ErrorCode::DownloadFailed, "org.pytorch.serve.archive.DownloadArchiveException"),
            (ErrorCode::BadRequest, "org.pytorch.serve.http.BadRequestException"),
            (ErrorCode::Prediction, "org.pytorch.serve.http.InternalServerException"),
        ] {
            assert_eq!(Problem::new(code, "why").description(), format!("why\n{class}"));
        }
    }

    #[test]
    fn clients_of_triton_know_an_unknown_model_by_the_first_words() {
        let unknown = |message: &str| Problem::new(ErrorCode::ModelNotFound, message);
        let text = unknown("Model not found: x").for_triton().into_owned();
        assert_eq!(text, "Request for unknown model: 'x' is not found");
        let text = unknown("There is none.").for_triton().into_owned();
        assert_eq!(text, "Request for unknown model: There is none.");
        assert_eq!(Problem::bad_request("why").for_triton(), "why");
        let version = |name: &str| {
            let message = format!("Model version: {name} does not exist for model: m");
            Problem::new(ErrorCode::VersionNotFound, message).for_triton().into_owned()
        };
        assert!(
            version("x")
                .starts_with("failed to get model version from specified version string 'x'")
        );
        assert_eq!(version("7"), "Model version: 7 does not exist for model: m");
    }

    #[test]
    fn an_endless_message_is_cut_between_two_characters() {
        let problem = Problem::bad_request("ü".repeat(9_999) + "x");
        let description = problem.description();
        assert_eq!(description.lines().next().map(str::len), Some(DESCRIPTION_BYTES_MAX));
        assert!(description.ends_with("BadRequestException"));
    }
}
