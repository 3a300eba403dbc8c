"""What makes embeddings of pictures, for engine and learner alike."""
