//! The gRPC side of the table: the code and the words of a failure, as TorchServe's clients read them.
//!
//! A failure that the handler gave a status of its own has the code that goes with that status, by
//! the same rule by which TorchServe turns one into the other.

use super::{ErrorCode, Problem};

/// Descriptions travel as a header, and clients refuse headers beyond a few KiB.
const DESCRIPTION_BYTES_MAX: usize = 2048;

impl Problem {
    /// The gRPC code: never that of success, whatever status a handler failed with.
    pub fn grpc_code(&self) -> u8 {
        let row = self.code.row();
        if self.status == row.status || self.status < 400 {
            return row.grpc;
        }
        grpc_code_of(self.status)
    }

    /// The message and, on a line of its own, TorchServe's class for it.
    pub fn description(&self) -> String {
        let class = class(self.code);
        let room = DESCRIPTION_BYTES_MAX.min(self.message.len());
        let message = &self.message[..self.message.floor_char_boundary(room)];
        format!("{message}\n{class}")
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

/// The full name of the class whose simple name is the row's type.
fn class(code: ErrorCode) -> String {
    let package = match code {
        ErrorCode::ModelNotFound
        | ErrorCode::VersionNotFound
        | ErrorCode::InvalidModel
        | ErrorCode::Unequipped => "org.pytorch.serve.archive.model",
        ErrorCode::WorkflowNotFound
        | ErrorCode::InvalidWorkflow
        | ErrorCode::InvalidDag
        | ErrorCode::WorkflowFailed => "org.pytorch.serve.archive.workflow",
        ErrorCode::DownloadFailed => "org.pytorch.serve.archive",
        ErrorCode::ResourceNotFound
        | ErrorCode::MethodNotAllowed
        | ErrorCode::BadRequest
        | ErrorCode::TooLarge
        | ErrorCode::Conflict
        | ErrorCode::DefaultVersion
        | ErrorCode::Expired
        | ErrorCode::Cancelled
        | ErrorCode::NoWorker
        | ErrorCode::Busy
        | ErrorCode::Quota
        | ErrorCode::InvalidKey
        | ErrorCode::Denied
        | ErrorCode::PluginAway
        | ErrorCode::PluginFailed
        | ErrorCode::Ending
        | ErrorCode::NodeFailed
        | ErrorCode::Prediction
        | ErrorCode::OutOfMemory
        | ErrorCode::WorkerDied
        | ErrorCode::WorkerKilled
        | ErrorCode::LoadFailed
        | ErrorCode::LoadOutOfMemory
        | ErrorCode::Internal => "org.pytorch.serve.http",
    };
    format!("{package}.{}", code.row().kind)
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
    fn an_endless_message_is_cut_between_two_characters() {
        let problem = Problem::bad_request("ü".repeat(9_999) + "x");
        let description = problem.description();
        assert_eq!(description.lines().next().map(str::len), Some(DESCRIPTION_BYTES_MAX));
        assert!(description.ends_with("BadRequestException"));
    }
}
