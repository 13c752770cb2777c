//! Giving restored values the container types of a template.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString, PyTuple};

use super::arrays::{self, jax::Jax};
use super::build::Builder;
use super::errors::Mismatch;
use super::known::{join, text, type_name};
use crate::state::Node;

/// Builds `node` with the container types of `template`; where the template says nothing, as without one.
///
/// # Errors
///
/// `StateMismatchError` if the template has keys or fields that were not saved, a named tuple or a dataclass of it lacks
/// some that were, or there is a container in it where none of that kind was saved.
pub(super) fn build_like<'py>(
    template: &Bound<'py, PyAny>,
    node: &Node,
    partial: bool,
    builder: &mut Builder<'py, '_>,
) -> PyResult<Bound<'py, PyAny>> {
    let mut shaper = Shaper {
        builder,
        partial,
        mismatch: Mismatch::default(),
    };
    let built = shaper.build(template, node, "")?;
    if shaper.mismatch.is_empty() {
        Ok(built)
    } else {
        Err(shaper.mismatch.into_error(template.py(), "like"))
    }
}

struct Shaper<'py, 'a, 'b> {
    builder: &'b mut Builder<'py, 'a>,
    /// Only a part of the checkpoint was asked for; the template may have more.
    partial: bool,
    mismatch: Mismatch,
}

impl<'py> Shaper<'py, '_, '_> {
    fn build(
        &mut self,
        template: &Bound<'py, PyAny>,
        node: &Node,
        name: &str,
    ) -> PyResult<Bound<'py, PyAny>> {
        if !fits(template, node)? {
            self.mismatch(template, node, name);
            return Ok(template.clone());
        }
        let class = template.get_type();
        match node {
            Node::Tensor(leaf) => match framework_of(template)? {
                Some(framework) => self.builder.array_as(leaf, framework),
                None => self.builder.build(node),
            },
            Node::Tagged { tag, value } if is_container(tag) => {
                if let (true, Node::Dict(entries)) = (class.hasattr("_fields")?, value.as_ref()) {
                    let names: Vec<String> = class.getattr("_fields")?.extract()?;
                    let values = self.fields(template, names, entries, name)?;
                    let values = values.into_iter().map(|(_, value)| value);
                    return class.call_method1("_make", (PyTuple::new(template.py(), values)?,));
                }
                if let (true, Node::Dict(entries)) =
                    (class.hasattr("__dataclass_fields__")?, value.as_ref())
                {
                    return self.dataclass(template, entries, name);
                }
                // The container itself is built as it was; what it holds follows the template.
                self.tagged(template, tag, value, name)
            }
            Node::Dict(entries) => {
                if let Ok(own) = template.cast::<PyDict>() {
                    let built = self.entries(own, entries, name)?;
                    return if class.is(template.py().get_type::<PyDict>()) {
                        Ok(built.into_any())
                    } else {
                        class.call1((built,))
                    };
                }
                self.builder.build(node)
            }
            Node::List(items) | Node::Tuple(items) => self.items(template, items, node, name),
            _ => self.builder.build(node),
        }
    }

    fn mismatch(&mut self, template: &Bound<'py, PyAny>, node: &Node, name: &str) {
        let name = if name.is_empty() {
            "(the whole state)"
        } else {
            name
        };
        let (saved, class) = (words(node), type_name(template));
        let mismatched = format!("{name} (saved: {saved}, template: {class})");
        self.mismatch.mismatched.push(mismatched);
    }

    fn items(
        &mut self,
        template: &Bound<'py, PyAny>,
        items: &[Node],
        node: &Node,
        name: &str,
    ) -> PyResult<Bound<'py, PyAny>> {
        let own: Vec<Bound<'py, PyAny>> =
            match (template.cast::<PyList>(), template.cast::<PyTuple>()) {
                (Ok(list), _) => list.iter().collect(),
                (_, Ok(tuple)) => tuple.iter().collect(),
                _ => return self.builder.build(node),
            };
        let mut built = Vec::with_capacity(items.len());
        for (i, item) in items.iter().enumerate() {
            built.push(match own.get(i) {
                Some(own) => self.build(own, item, &join(name, &i.to_string()))?,
                None => self.builder.build(item)?,
            });
        }
        let py = template.py();
        if !template.is_instance_of::<PyTuple>() {
            return Ok(PyList::new(py, built)?.into_any());
        }
        let tuple = PyTuple::new(py, built)?;
        match template.get_type().getattr_opt("_make")? {
            Some(make) if own.len() == items.len() => make.call1((tuple,)),
            Some(_) => {
                self.mismatch(template, node, name);
                Ok(template.clone())
            }
            None => Ok(tuple.into_any()),
        }
    }

    fn entries(
        &mut self,
        own: &Bound<'py, PyDict>,
        entries: &[(Node, Node)],
        name: &str,
    ) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(own.py());
        for (key, value) in entries {
            let key_object = self.builder.build(key)?;
            let value = match own.get_item(&key_object)? {
                Some(own) => self.build(&own, value, &join(name, &key.name()))?,
                None => self.builder.build(value)?,
            };
            dict.set_item(key_object, value)?;
        }
        for key in own.keys().iter().filter(|_| !self.partial) {
            if !dict.contains(&key)? {
                self.mismatch.missing.push(join(name, &text(&key)?));
            }
        }
        Ok(dict)
    }

    fn tagged(
        &mut self,
        template: &Bound<'py, PyAny>,
        tag: &str,
        value: &Node,
        name: &str,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (Ok(own), Node::Dict(entries)) = (template.cast::<PyDict>(), value) else {
            return self.builder.build(&Node::tagged(tag, value.clone()));
        };
        let built = self.entries(own, entries, name)?;
        let empty = self
            .builder
            .build(&Node::tagged(tag, Node::Dict(Vec::new())))?;
        if !empty.hasattr("update")? {
            return self.builder.build(&Node::tagged(tag, value.clone()));
        }
        // `Counter.update` would add; entries are set one by one.
        for (key, value) in built.iter() {
            empty.set_item(key, value)?;
        }
        Ok(empty)
    }

    fn fields(
        &mut self,
        template: &Bound<'py, PyAny>,
        names: Vec<String>,
        entries: &[(Node, Node)],
        path: &str,
    ) -> PyResult<Vec<(String, Bound<'py, PyAny>)>> {
        for (key, _) in entries
            .iter()
            .filter(|(key, _)| !names.iter().any(|name| key.as_str() == Some(name)))
        {
            self.mismatch.unexpected.push(join(path, &key.name()));
        }
        let mut values = Vec::with_capacity(names.len());
        for name in names {
            let own = template.getattr(PyString::new(template.py(), &name))?;
            let entry = entries.iter().find(|(key, _)| key.as_str() == Some(&name));
            let value = if let Some((_, value)) = entry {
                self.build(&own, value, &join(path, &name))?
            } else {
                if !self.partial {
                    self.mismatch.missing.push(join(path, &name));
                }
                own
            };
            values.push((name, value));
        }
        Ok(values)
    }

    /// An instance with exactly the saved fields; nothing of the class runs, as with `copy.copy`.
    fn dataclass(
        &mut self,
        template: &Bound<'py, PyAny>,
        entries: &[(Node, Node)],
        name: &str,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = template.py();
        let fields = py
            .import("dataclasses")?
            .call_method1("fields", (template,))?;
        let names: Vec<String> = fields
            .try_iter()?
            .map(|field| field?.getattr("name")?.extract())
            .collect::<PyResult<_>>()?;
        let values = self.fields(template, names, entries, name)?;
        let object = py
            .get_type::<PyAny>()
            .call_method1("__new__", (template.get_type(),))?;
        let setattr = py.get_type::<PyAny>().getattr("__setattr__")?;
        for (name, value) in values {
            setattr.call1((&object, name, value))?;
        }
        Ok(object)
    }
}

/// Whether there is a container in the checkpoint that can be given the type of the one in the template. Anything else
/// in a template fits all; nothing, in the checkpoint, fits any; and of the state of an object no more is known.
fn fits(template: &Bound<'_, PyAny>, node: &Node) -> PyResult<bool> {
    let class = template.get_type();
    let is_dict = template.is_instance_of::<PyDict>();
    let is_tuple = template.is_instance_of::<PyTuple>();
    let is_sequence = is_tuple || template.is_instance_of::<PyList>();
    let has_fields =
        (is_tuple && class.hasattr("_fields")?) || class.hasattr("__dataclass_fields__")?;
    if !(is_dict || is_sequence || has_fields) {
        return Ok(true);
    }
    Ok(match node {
        Node::None => true,
        Node::Dict(_) => is_dict,
        Node::List(_) | Node::Tuple(_) => is_sequence,
        // What is an array too was saved as one.
        Node::Tensor(_) => matches!(arrays::describe(template), Ok(Some(_))),
        Node::Tagged { tag, value } => match (tag.split(':').next(), value.as_ref()) {
            (Some("object"), _) => true,
            (Some("namedtuple"), _) => is_tuple || has_fields,
            (Some("dataclass" | "types.SimpleNamespace"), _) => has_fields,
            (_, Node::Dict(_)) => is_dict || has_fields,
            (_, Node::List(_) | Node::Tuple(_)) => is_sequence,
            _ => false,
        },
        _ => false,
    })
}

fn words(node: &Node) -> String {
    match node {
        Node::Tensor(_) => "array".to_owned(),
        Node::Dict(entries) => format!("dict of {}", entries.len()),
        Node::List(items) => format!("list of {}", items.len()),
        Node::Tuple(items) => format!("tuple of {}", items.len()),
        Node::Set(items) => format!("set of {}", items.len()),
        // Without the versions of torch's modules, which fill pages.
        Node::Tagged { tag, .. } => tag.split(":{").next().unwrap_or_default().to_owned(),
        _ => "a plain value".to_owned(),
    }
}

fn is_container(tag: &str) -> bool {
    let name = tag.split(':').next().unwrap_or(tag);
    matches!(name, "namedtuple" | "dataclass" | "types.SimpleNamespace")
        || name.starts_with("collections.")
}

/// The framework of a template's leaf, if it is an array, or stands for one in JAX.
fn framework_of(template: &Bound<'_, PyAny>) -> PyResult<Option<&'static str>> {
    if let Ok(Some(array)) = arrays::describe(template) {
        return Ok(["numpy", "torch", "jax"]
            .into_iter()
            .find(|name| *name == arrays::framework(&array.kind)));
    }
    let stands_for_jax =
        Jax::get(template.py())?.is_some() && template.get_type().name()? == "ShapeDtypeStruct";
    Ok(stands_for_jax.then_some("jax"))
}
