"""Any rule inside other libraries."""
