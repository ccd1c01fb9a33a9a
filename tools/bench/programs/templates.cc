// SPDX-License-Identifier: Apache-2.0
// templates ROUNDS: words counted with maps, sorted and matched, so that most of the time is in inlined calls.
#include <algorithm>
#include <functional>
#include <iostream>
#include <map>
#include <numeric>
#include <regex>
#include <sstream>
#include <string>
#include <unordered_map>
#include <vector>

static double count(const std::string &word)
{
	static std::map<std::string, std::vector<int>> lengths;
	static std::unordered_map<std::string, double> sums;
	auto &those = lengths[word];
	those.push_back(static_cast<int>(word.size()));
	std::sort(those.begin(), those.end(), [](int a, int b) { return a > b; });
	if (those.size() > 64)
		those.clear();
	return sums[word] += std::accumulate(those.begin(), those.end(), 0.0);
}

__attribute__((noinline)) static double parse(const std::string &line, int depth)
{
	if (depth)
		return parse(line, depth - 1) + 1;
	static const std::regex pattern("([a-z]+)([0-9]+)x*");
	std::istringstream words(line);
	std::smatch match;
	double sum = 0;
	for (std::string word; words >> word;)
		sum += count(word);
	return std::regex_search(line, match, pattern) ? sum + static_cast<double>(match.length()) : sum;
}

int main(int, char **arguments)
{
	double sum = 0;
	for (int round = std::stoi(arguments[1]); round > 0; round--) {
		std::string line;
		for (int word = 0; word < 12; word++)
			line += "w" + std::to_string((round * 7919 + word * 31) % 997) + (word % 2 ? " " : "x ");
		const std::function<double(int)> at_depth = [&](int depth) { return parse(line, depth); };
		sum += at_depth(round % 10);
	}
	std::cout << sum << "\n";
}
