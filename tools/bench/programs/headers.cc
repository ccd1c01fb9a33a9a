#include <bits/stdc++.h>
#include <regex>
int main() { std::regex r("a+b"); std::map<std::string, std::vector<int>> m; return std::regex_match("ab", r) + m.size(); }
