#pragma once

#include <charconv>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include <CLI/CLI.hpp>

#include <dynapipe/core/arithmetic.hpp>
#include <dynapipe/core/error.hpp>
#include <dynapipe/core/names.hpp>
#include <dynapipe/core/units.hpp>
#include <dynapipe/cost/cluster.hpp>
#include <dynapipe/cost/model.hpp>
#include <dynapipe/ext/json.hpp>

/// Arguments that several subcommands of `dynapipe` share.

namespace command {

/// Bytes from text such as 36000MB (10^6) or 40GiB (2^30). Throws `error` naming the flag.
inline dynapipe::bytes parse_bytes(const std::string& flag, const std::string& text) {
  static constexpr std::pair<const char*, std::int64_t> suffixes[] = {{"", 1},
                                                                      {"B", 1},
                                                                      {"KB", 1'000},
                                                                      {"MB", 1'000'000},
                                                                      {"GB", 1'000'000'000},
                                                                      {"KiB", 1LL << 10},
                                                                      {"MiB", 1LL << 20},
                                                                      {"GiB", 1LL << 30},
                                                                      {"TB", 1'000'000'000'000},
                                                                      {"TiB", 1LL << 40}};
  const std::size_t digits = text.find_first_not_of("0123456789");
  const std::string suffix = digits == std::string::npos ? "" : text.substr(digits);
  for (const auto& [name, scale] : suffixes) {
    if (suffix != name || digits == 0 || text.empty() || text.size() - suffix.size() > 18) continue;
    const std::int64_t value = dynapipe::saturating_mul(std::stoll(text), scale);
    if (value > 0) return dynapipe::bytes{value};
  }
  throw dynapipe::error{flag + " '" + text + "' is no positive size (examples: 36000MB, 40GiB, 42949672960)"};
}

/// A preset by name, or a file.
template <class Spec, class Presets, class Load>
Spec preset_or_file(const std::string& text, const char* what, const Presets& presets, Load load) {
  std::string known;
  for (const Spec& preset : presets) {
    if (preset.name == text) return preset;
    known += (known.empty() ? "" : ", ") + preset.name;
  }
  if (std::filesystem::exists(text)) return load(text);
  throw dynapipe::error{std::string{"unknown "} + what + " '" + text + "': neither a preset (" + known +
                        ") nor a file"};
}

inline dynapipe::model_spec model_of(const std::string& text) {
  return preset_or_file<dynapipe::model_spec>(text, "model", dynapipe::presets::models(),
                                              [](const auto& file) { return dynapipe::load_model(file); });
}

inline dynapipe::cluster_spec cluster_of(const std::string& text) {
  return preset_or_file<dynapipe::cluster_spec>(text, "cluster", dynapipe::presets::clusters(),
                                                [](const auto& file) { return dynapipe::load_cluster(file); });
}

template <class Number>
struct number_of {
  using type = Number;
};
template <class Number>
struct number_of<std::optional<Number>> {
  using type = Number;
};

/// An option of one whole number; unlike the library's own reading it takes no blanks, signs that overflow, or nothing.
template <class Number>
CLI::Option* add_number(CLI::App& app, const char* name, Number& value, const std::string& help) {
  return app
      .add_option_function<std::string>(
          name,
          [&value, name](const std::string& text) {
            typename number_of<Number>::type read = 0;
            const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), read);
            if (text.empty() || end != text.data() + text.size() || problem != std::errc{})
              throw CLI::ValidationError{name, "'" + text + "' is no whole number in range"};
            value = read;
          },
          help)
      ->type_name("N");
}

/// An option of one word of a table of names.
template <class Enum, std::size_t N>
CLI::Option* add_word(CLI::App& app, const char* name, Enum& value, const dynapipe::name_table<Enum, N>& table,
                      const char* help) {
  std::string words;
  for (const auto& [key, word] : table)
    words += (words.empty() ? "" : "|") + std::string{word};
  return app
      .add_option_function<std::string>(
          name,
          [&value, &table, name, words](const std::string& text) {
            const std::optional<Enum> found = dynapipe::value_in(table, text);
            if (!found) throw CLI::ValidationError{name, "'" + text + "' is none of " + words};
            value = *found;
          },
          help)
      ->type_name(words);
}

/// `--summary text|json`.
inline void add_summary(CLI::App& app, std::string& summary) {
  app.add_option("--summary", summary, "How to print the summary")
      ->check(CLI::IsMember({"text", "json"}))
      ->type_name("text|json")
      ->capture_default_str();
}

}  // namespace command
