//! Rules of form, told as tests.

use super::*;
