"""Things people say to an assistant that no memory answers: greetings, sums, facts of the world, orders, code."""

EVERYDAY = (
    "hello",
    "good evening to you",
    "many thanks, that was it",
    "okay, sounds good",
    "haha nice",
    "make me laugh",
    "how much is 48 divided by 6",
    "what is 15 percent of 260",
    "how many centimetres is a foot",
    "how do you say goodbye in spanish",
    "which planet is closest to the sun",
    "who painted the sunflowers",
    "at what temperature does water freeze",
    "what does photosynthesis do",
    "wake me at half past six",
    "switch the bedroom lamp on",
    "put on something by mozart",
    "sort a dictionary by value in python",
    "what is the difference between tcp and udp",
    "write a haiku about autumn",
)
