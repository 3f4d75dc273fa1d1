/// The conformance driver: answers the cases of one kind from a JSON file.
///
/// `conformance KIND CASES.json [--budget-ms N]`; `-` reads standard input. The file is a list of cases, or an object
/// whose `cases` is one. Writes one result per case, in order. Exit status 0 when every case was answered (also with
/// `infeasible` or `error`), 2 with one line on standard error when the arguments or the file are unusable.

#include <cstdint>
#include <exception>
#include <iostream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <dynapipe/batch/constraint.hpp>
#include <dynapipe/core/error.hpp>
#include <dynapipe/ext/files.hpp>

#include "conformance/kinds.hpp"

namespace {

using nlohmann::json;

constexpr std::pair<std::string_view, conformance::kind_function> kinds[] = {
    {"cost", conformance::cost},
    {"deadlock", conformance::deadlock},
    {"pack", conformance::pack},
    {"partition", conformance::partition},
    {"schedule", conformance::schedule},
};

struct arguments {
  conformance::kind_function kind = nullptr;
  std::string file;
  conformance::options how;
};

conformance::kind_function find_kind(std::string_view name) {
  std::string known;
  for (const auto& [key, function] : kinds) {
    if (key == name) return function;
    known += (known.empty() ? "" : ", ") + std::string{key};
  }
  throw dynapipe::error{"unknown kind " + std::string{name} + " (known: " + known + ")"};
}

std::int64_t budget(const std::string& text) {
  std::size_t used = 0;
  std::int64_t value = -1;
  try {
    value = std::stoll(text, &used);
  } catch (const std::logic_error&) {
    value = -1;
  }
  if (used != text.size() || value < 0) throw dynapipe::error{"--budget-ms is no number of milliseconds: " + text};
  return value;
}

arguments parse(const std::vector<std::string>& words) {
  arguments parsed;
  std::vector<std::string> plain;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i] == "--budget-ms") {
      if (i + 1 == words.size()) throw dynapipe::error{"--budget-ms needs a number"};
      parsed.how.budget_ms = budget(words[++i]);
    } else if (words[i].starts_with("--")) {
      throw dynapipe::error{"unknown option " + words[i]};
    } else {
      plain.push_back(words[i]);
    }
  }
  if (plain.size() != 2) throw dynapipe::error{"usage: conformance KIND CASES.json [--budget-ms N]"};
  parsed.kind = find_kind(plain[0]);
  parsed.file = plain[1];
  return parsed;
}

json read_cases(const std::string& file) {
  const std::string text =
      file == "-" ? std::string{std::istreambuf_iterator<char>{std::cin}, {}} : dynapipe::read_file(file);
  json cases;
  try {
    cases = json::parse(text);
  } catch (const json::exception& problem) {
    throw dynapipe::error{file + ": " + problem.what()};
  }
  const json& list = cases.is_object() && cases.contains("cases") ? cases["cases"] : cases;
  if (!list.is_array()) throw dynapipe::error{file + ": neither a list of cases nor an object with one"};
  return list;
}

json answer(const arguments& wanted, const json& test_case) {
  try {
    return wanted.kind(test_case, wanted.how);
  } catch (const dynapipe::infeasible& problem) {
    return {{"infeasible", problem.what()}};
  } catch (const dynapipe::unsatisfiable& problem) {
    return {{"infeasible", problem.what()}};
  } catch (const std::exception& problem) {
    return {{"error", problem.what()}};
  }
}

}  // namespace

int main(int count, char** words) {
  try {
    const arguments wanted = parse({words + 1, words + count});
    json results = json::array();
    for (const json& test_case : read_cases(wanted.file))
      results.push_back(answer(wanted, test_case));
    std::cout << results.dump(1, ' ', false, json::error_handler_t::replace) << '\n';
    return std::cout.flush() ? 0 : 2;
  } catch (const std::exception& problem) {
    std::cerr << "conformance: " << problem.what() << '\n';
    return 2;
  }
}
