"""What a row is: score laws and the steps along the sequence. Data, no engine."""
