"""What a job of many ranks would take if its ranks were alike: replay of its operations with other lengths.

May import the format of a run and what stands below `profiler_server.analysis`. Must not import pages, or torch.
The model is that of "Understanding Stragglers in Large Model Training Using What-if Analysis" (OSDI 2025).
"""
