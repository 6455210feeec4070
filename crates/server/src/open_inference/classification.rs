//! The best classes of a tensor of scores, as the protocol's classification extension writes them:
//! `score:index`, and `score:index:label` where the classes have names.

use jitney_engine::tensors::{Datatype, NamedTensor};

use super::elements;

/// The best `classes` of every row of a model that batches, of the whole tensor otherwise.
pub(super) fn best(
    tensor: &NamedTensor,
    classes: usize,
    batches: bool,
    labels: &[String],
) -> Result<NamedTensor, String> {
    let name = tensor.name();
    if tensor.datatype() == Datatype::Bytes {
        return Err(format!("output {name:?} is BYTES, which has no scores to choose classes by"));
    }
    let rows = match (batches, tensor.shape()) {
        (true, [rows, _, ..]) => Some(*rows),
        _ => None,
    };
    let scores = elements::doubles(tensor);
    let width = scores.len() / rows.unwrap_or(1).max(1);
    let kept = classes.min(width);
    let whole = !matches!(
        tensor.datatype(),
        Datatype::Fp16 | Datatype::Bf16 | Datatype::Fp32 | Datatype::Fp64
    );
    let mut raw = Vec::new();
    for row in scores.chunks(width.max(1)) {
        let mut order: Vec<usize> = (0..row.len()).collect();
        let better = |a: &usize, b: &usize| row[*b].total_cmp(&row[*a]).then(a.cmp(b));
        if kept < order.len() && kept > 0 {
            order.select_nth_unstable_by(kept - 1, better);
            order.truncate(kept);
        }
        order.sort_unstable_by(better);
        for index in order.into_iter().take(kept) {
            let score = row[index];
            let mut text =
                if whole { format!("{score:.0}:{index}") } else { format!("{score:.6}:{index}") };
            if let Some(label) = labels.get(index) {
                text.push(':');
                text.push_str(label);
            }
            elements::put_text(text.as_bytes(), &mut raw);
        }
    }
    let shape: Vec<usize> = rows.into_iter().chain([kept]).collect();
    NamedTensor::new(name, Datatype::Bytes, shape, raw.into())
}

#[cfg(test)]
mod tests {
    use jitney_engine::tensors::strings;

    use super::*;

    fn scores(shape: &[usize], json: &str) -> NamedTensor {
        let (raw, _) = elements::read(Datatype::Fp32, json).expect("numbers");
        NamedTensor::new("y", Datatype::Fp32, shape, raw).expect("fits")
    }

    fn texts(tensor: &NamedTensor) -> Vec<&str> {
        strings(tensor.data()).map(|text| std::str::from_utf8(text).expect("text")).collect()
    }

    #[test]
    fn every_row_has_its_best_classes() {
        let tensor = scores(&[2, 3], "[0.1, 0.7, 0.2, 5, -1, 5]");
        let labels = ["cat", "dog"].map(str::to_owned);
        let top = best(&tensor, 2, true, &labels).expect("scores");
        assert_eq!(top.shape(), [2, 2]);
        let expected = ["0.700000:1:dog", "0.200000:2", "5.000000:0:cat", "5.000000:2"];
        assert_eq!(texts(&top), expected);
        let all = best(&tensor, 100, false, &[]).expect("scores");
        assert_eq!((all.shape(), texts(&all)[0]), (&[6][..], "5.000000:3"));
    }

    #[test]
    fn rows_without_scores_have_no_classes_and_texts_have_no_scores() {
        let none = best(&scores(&[0, 3], "[]"), 2, true, &[]).expect("no rows");
        assert_eq!((none.shape(), none.elements()), (&[0, 0][..], 0));
        let text = NamedTensor::new("y", Datatype::Bytes, [0], bytes::Bytes::new()).expect("none");
        assert!(best(&text, 1, false, &[]).is_err());
    }
}
