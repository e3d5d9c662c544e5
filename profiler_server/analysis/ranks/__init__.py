"""What rules and pages know of the ranks of a job: how they compare, and the collectives that join them."""
