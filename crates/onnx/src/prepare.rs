//! Makes images and texts into tensors, as the card beside the model declares it, on all cores of the
//! worker that runs the model. What cannot be prepared fails alone.

mod image;
mod resample;
mod text;

use std::path::Path;
use std::sync::OnceLock;

use bytes::Bytes;
use jitney_engine::local::{Dim, Signature, TensorSpec};
use jitney_engine::tensors::Datatype;
use rayon::prelude::*;

pub use self::image::ImageRule;
pub(super) use self::image::{IMAGE_KEYS, ImagePreparation};
pub use self::text::TextRule;
pub(super) use self::text::{TEXT_KEYS, TextPreparation};
use super::tensor::Tensor;

/// How raw bodies become tensors, as far as the card asks for it.
#[derive(Debug)]
pub(super) enum Preparation {
    Image(ImagePreparation),
    Text(TextPreparation),
}

/// The tensors of one body, one per input of the model; a sentence for the client where there are none.
pub(super) type PreparedTensors = Result<Vec<Tensor>, String>;

impl Preparation {
    /// Reads the files that it needs in the process that prepares.
    pub(super) fn load(
        &self,
        read: impl FnOnce(&Path) -> Result<Vec<u8>, String>,
    ) -> Result<(), String> {
        match self {
            Self::Image(_) => Ok(()),
            Self::Text(text) => {
                let json = read(text.tokenizer());
                text.load(&json.map_err(|error| format!("text.tokenizer: {error}"))?)
            }
        }
    }

    /// Prepares bodies that run together.
    pub(super) fn prepare(&self, bodies: &[&[u8]]) -> Vec<PreparedTensors> {
        match self {
            Self::Image(image) => on_all_cores(bodies, |body| {
                let elements = image.prepare(body)?;
                Ok(vec![tensor(image.datatype, image.shape(), elements)?])
            }),
            Self::Text(text) => {
                let tokens = on_all_cores(bodies, |body| text.tokens(body));
                let length = text.length(tokens.iter().flatten());
                let tensors = tokens.into_iter().map(|tokens| {
                    let elements = text.elements(&tokens?, length).into_iter();
                    elements.map(|(it, elements)| tensor(it, vec![1, length], elements)).collect()
                });
                tensors.collect()
            }
        }
    }
}

fn tensor(datatype: Datatype, shape: Vec<usize>, elements: Vec<u8>) -> Result<Tensor, String> {
    let tensor = Tensor::new(datatype, shape, Bytes::from(elements));
    tensor.ok_or_else(|| "the body does not fill the model's input".to_owned())
}

/// Does the work on each body, on as many threads as there are cores.
fn on_all_cores<T: Send>(
    bodies: &[&[u8]],
    work: impl Fn(&[u8]) -> Result<T, String> + Sync,
) -> Vec<Result<T, String>> {
    static POOL: OnceLock<Option<rayon::ThreadPool>> = OnceLock::new();
    let pool = || POOL.get_or_init(|| rayon::ThreadPoolBuilder::new().build().ok()).as_ref();
    match bodies {
        [] | [_] => bodies.iter().map(|body| work(body)).collect(),
        _ => match pool() {
            Some(pool) => pool.install(|| bodies.par_iter().map(|body| work(body)).collect()),
            None => bodies.iter().map(|body| work(body)).collect(),
        },
    }
}

/// What makes an image the raw elements of FP32 of this shape, as the `image` section of a card says;
/// for measuring.
///
/// # Errors
/// A sentence where the section is wrong or does not fit the shape.
pub fn image_preparer(
    section: &str,
    shape: [usize; 3],
) -> Result<impl Fn(&[u8]) -> Result<Vec<u8>, String>, String> {
    let rule: ImageRule = serde_saphyr::from_str(section).map_err(|error| error.to_string())?;
    let batch = std::iter::once(Dim::Open("n".to_owned()));
    let shape = Some(batch.chain(shape.map(Dim::Fixed)).collect());
    let inputs = vec![TensorSpec { name: "images".to_owned(), datatype: Datatype::Fp32, shape }];
    let preparation = rule.fit(&Signature { inputs, outputs: Vec::new() })?;
    Ok(move |body: &[u8]| preparation.prepare(body))
}
