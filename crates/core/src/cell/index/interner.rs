//! Interned ids for values that recur: models, labels, racks, job shapes. The table is an `IndexSet`.

use std::hash::Hash;
use std::marker::PhantomData;

use indexmap::IndexSet;
use indexmap::set::Slice;

use crate::name_hash::NameHasher;

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
/// replica.
#[derive(Clone, Debug)]
pub struct Interner<T, I> {
    values: IndexSet<T, NameHasher>,
    ids: PhantomData<I>,
}

impl<T, I> Default for Interner<T, I> {
    fn default() -> Interner<T, I> {
        Interner { values: IndexSet::default(), ids: PhantomData }
    }
}

impl<T: Eq + Hash, I: InternedId> Interner<T, I> {
    /// An empty table.
    pub fn new() -> Interner<T, I> {
        Interner::default()
    }

    /// The id of a value, assigned now if it is new.
    pub fn intern(&mut self, value: T) -> I {
        let (index, _) = self.values.insert_full(value);
        I::from_index(u32::try_from(index).expect("fewer than 2^32 distinct values"))
    }

    /// The id of a value that was interned before.
    pub fn find<Q>(&self, value: &Q) -> Option<I>
    where
        T: std::borrow::Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let index = self.values.get_index_of(value)?;
        Some(I::from_index(u32::try_from(index).expect("it was interned with this id")))
    }

    /// The value of an id that this table gave out.
    #[inline]
    pub fn get(&self, id: I) -> &T {
        self.values.get_index(id.index()).expect("ids come from this table")
    }

    /// All values in the order of their ids.
    pub fn values(&self) -> &Slice<T> {
        self.values.as_slice()
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
        assert!(models.values().iter().eq(["a100", "h100"]));
    }
}
