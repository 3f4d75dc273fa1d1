#pragma once

#include <algorithm>
#include <cstddef>
#include <random>
#include <string>
#include <string_view>
#include <vector>

/// `text` with one to three random changes: a letter, a piece left out, doubled, or put in from `words`, a number that
/// is another, or the end cut off.
inline std::string damaged(std::mt19937_64& random, std::string text, const std::vector<std::string_view>& words) {
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  const std::string_view letters{"0123456789-+.eE\"\\{}[],:nutrlfa \n\xC3\x28\x00", 35};
  for (std::size_t change = 1 + below(3); change > 0 && !text.empty(); --change) {
    const std::size_t at = below(text.size());
    const std::size_t length = std::min(below(40), text.size() - at);
    const std::size_t number = text.find_first_of("0123456789", at);
    switch (below(7)) {
      case 0: text[at] = letters[below(letters.size())]; break;
      case 1: text.erase(at, length); break;
      case 2: text.insert(at, text.substr(below(text.size()), length)); break;
      case 3: text.insert(at, words[below(words.size())]); break;
      case 4: text.resize(at); break;
      default:
        if (number == std::string::npos) break;
        text.replace(number, std::min(text.find_first_not_of("0123456789", number), text.size()) - number,
                     below(2) == 0 ? std::string{words[below(words.size())]} : std::to_string(below(5000)));
    }
  }
  return text;
}
