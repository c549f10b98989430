"""Reading by URI: instances, pages, documents, completion."""
