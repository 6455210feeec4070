//! How the rows of an output become labels, the likeliest first.

use super::elements;
use super::tensor::Tensor;

/// The likeliest labels of the first output with their probabilities.
#[derive(Clone, Debug, PartialEq)]
pub struct Ranking {
    /// One label per class, in the model's order.
    pub labels: Vec<String>,
    /// How many are named in an answer.
    pub top: usize,
    /// Whether the output still has to be made into probabilities.
    pub softmax: bool,
}

impl Ranking {
    /// The likeliest labels of every row, the likeliest first.
    pub(super) fn rows(&self, output: &Tensor) -> Result<Vec<Vec<(&str, f32)>>, String> {
        let Some(data) = elements::floats(output) else {
            return Err(format!("labels need numbers, this output is {}", output.datatype()));
        };
        let classes = self.labels.len();
        if classes == 0 || output.shape().last() != Some(&classes) {
            return Err(format!("{classes} labels for an output of shape {:?}", output.shape()));
        }
        Ok(data.chunks_exact(classes).map(|row| self.row(row)).collect())
    }

    fn row(&self, row: &[f32]) -> Vec<(&str, f32)> {
        let probabilities = if self.softmax { softmax(row) } else { row.to_vec() };
        let labels = self.labels.iter().map(String::as_str);
        let mut ranked: Vec<(&str, f32)> = labels.zip(probabilities).collect();
        // Stable, so that classes of equal weight keep the model's order.
        ranked.sort_by(|left, right| right.1.total_cmp(&left.1));
        ranked.truncate(self.top);
        ranked
    }
}

/// Shifted by the largest number, which no exponential can then overflow.
fn softmax(row: &[f32]) -> Vec<f32> {
    let max = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let weights: Vec<f32> = row.iter().map(|number| (number - max).exp()).collect();
    let total: f32 = weights.iter().sum();
    weights.into_iter().map(|weight| weight / total).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use jitney_engine::tensors::Datatype;

    fn rows(numbers: &[f32], softmax: bool) -> Result<Vec<Vec<(&'static str, f32)>>, String> {
        let labels = ["cat", "dog", "owl"].map(str::to_owned).to_vec();
        let shape = vec![numbers.len() / 3, 3];
        let tensor = Tensor::of(Datatype::Fp32, shape, numbers);
        let ranking = Box::leak(Box::new(Ranking { labels, top: 2, softmax }));
        ranking.rows(&tensor.expect("rows of three"))
    }

    #[test]
    fn the_likeliest_labels_come_first_and_ties_keep_their_order() {
        let expected = vec![vec![("owl", 0.7), ("dog", 0.2)], vec![("cat", 0.4), ("dog", 0.4)]];
        assert_eq!(rows(&[0.1, 0.2, 0.7, 0.4, 0.4, 0.2], false), Ok(expected));
    }

    #[test]
    fn softmax_gives_probabilities_even_for_huge_numbers() {
        let rows = rows(&[1000.0, 1000.0, 0.0], true).expect("three classes");
        assert_eq!(rows, vec![vec![("cat", 0.5), ("dog", 0.5)]]);
    }

    #[test]
    fn an_output_of_another_width_is_rejected() {
        let tensor = Tensor::of(Datatype::Fp32, vec![1, 2], &[0.5f32, 0.5]);
        let ranking = Ranking { labels: vec!["cat".to_owned()], top: 1, softmax: false };
        let error = ranking.rows(&tensor.expect("two elements"));
        assert_eq!(error, Err("1 labels for an output of shape [1, 2]".to_owned()));
    }
}
