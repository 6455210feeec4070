//! Settings whose values are words: an enum and its words, declared together so that they cannot differ.

/// Declares an enum whose variants are the words of a `SettingKind::Choice`.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident: $($(#[$variant_doc:meta])* $variant:ident = $word:literal,)*) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub enum $name {
            $($(#[$variant_doc])* $variant,)*
        }

        impl $name {
            /// Every word.
            pub const WORDS: &[&str] = &[$($word),*];

            /// The word users type.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)*
                }
            }
        }

        impl $crate::FromValue for $name {
            fn from_value(value: &$crate::SettingValue) -> Option<Self> {
                let $crate::SettingValue::Text(text) = value else { return None };
                match text.as_str() {
                    $($word => Some(Self::$variant),)*
                    _ => None,
                }
            }
        }
    };
}

pub(crate) use words;
