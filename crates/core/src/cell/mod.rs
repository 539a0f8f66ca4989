//! The cell: nodes, queue, shares and placement of one region.
