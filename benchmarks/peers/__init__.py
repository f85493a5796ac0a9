"""The same work written plainly in other libraries."""
