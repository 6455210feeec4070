//! Rules of fair, told as tests.

use super::*;
