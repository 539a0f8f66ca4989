//! Interned ids for values that recur: models, labels, racks, job shapes.

use std::hash::Hash;

use crate::name_hash::NameMap;

/// A number that stands for an interned value.
pub trait InternedId: Copy {
    /// The id at a position in its table.
    fn from_index(index: u32) -> Self;
    /// The position in its table.
    fn index(self) -> usize;
}

/// Declares an id type for one kind of interned value.
macro_rules! interned_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u32);

        impl $crate::cell::index::interner::InternedId for $name {
            fn from_index(index: u32) -> $name {
                $name(index)
            }

            fn index(self) -> usize {
                // A u32 fits in a usize on every platform this builds for.
                self.0 as usize
            }
        }
    };
}
pub(crate) use interned_id;

/// A table of distinct values in the order in which they were first seen.
///
/// Ids are never reused or dropped, so the same values in the same order get the same ids on every
/// replica. The map inside is only looked up, never iterated.
#[derive(Clone, Debug)]
pub struct Interner<T, I> {
    values: Vec<T>,
    ids: NameMap<T, I>,
}

impl<T, I> Default for Interner<T, I> {
    fn default() -> Interner<T, I> {
        Interner { values: Vec::new(), ids: NameMap::default() }
    }
}

impl<T: Clone + Eq + Hash, I: InternedId> Interner<T, I> {
    /// An empty table.
    pub fn new() -> Interner<T, I> {
        Interner::default()
    }

    /// The id of a value, assigned now if it is new.
    pub fn intern(&mut self, value: T) -> I {
        if let Some(id) = self.ids.get(&value) {
            return *id;
        }
        let index = u32::try_from(self.values.len()).expect("fewer than 2^32 distinct values");
        let id = I::from_index(index);
        self.values.push(value.clone());
        self.ids.insert(value, id);
        id
    }

    /// The id of a value that was interned before.
    pub fn find<Q>(&self, value: &Q) -> Option<I>
    where
        T: std::borrow::Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.ids.get(value).copied()
    }

    /// The value of an id that this table gave out.
    pub fn get(&self, id: I) -> &T {
        &self.values[id.index()]
    }

    /// All values in the order of their ids.
    pub fn values(&self) -> &[T] {
        &self.values
    }

    /// How many distinct values there are.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Whether nothing was interned yet.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::schedule::shape::ModelId;

    #[test]
    fn equal_values_share_an_id_and_ids_follow_the_first_occurrence() {
        let mut models: Interner<String, ModelId> = Interner::new();
        let first = models.intern("a100".into());
        let second = models.intern("h100".into());
        assert_eq!(models.intern("a100".into()), first);
        assert_eq!((first, second), (ModelId(0), ModelId(1)));
        assert_eq!(models.get(second), "h100");
        assert_eq!(models.find("h100"), Some(second));
        assert_eq!(models.find("t4"), None);
        assert_eq!(models.values(), ["a100", "h100"]);
    }
}
