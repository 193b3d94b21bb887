"""What holds the pods of one group together for one life: who belongs to it, and when it ends."""
