"""Does an agent get better by remembering? Small tool tasks, done twice, by a policy that only reads its prompt."""
