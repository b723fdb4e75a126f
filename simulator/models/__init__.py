"""What a model does: layers, operations and number formats; the importer of Hugging Face configurations."""
