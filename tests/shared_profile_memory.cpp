/// Compares the analytic activation memory of a GPT layer with measured bytes: shared_profile_memory CSV. Prints a
/// table and exits 1 where a bound is missed, 77 (skipped) where there is no such file. CSV has columns
/// tp,recompute,layer,enc_seqlen,dec_seqlen,mbs, stored_activation_mb,peak_activation_mb (10^6 bytes), of Megatron-LM's
/// layer with hidden 4096, 32 heads, fp16 and unfused attention.
///
/// The numbers themselves say how they were measured. A stack of `layers` layers ran (three; two or one where the
/// device ran short); stored bytes are divided by them, the peak is the whole stack's. Beside its layers the stack
/// holds its output of hidden states, a tenth of a byte for each score and 427 kB.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <dynapipe/cost/analytic.hpp>
#include <dynapipe/cost/memory.hpp>

using namespace dynapipe;

namespace {

constexpr std::int64_t hidden = 4096;
constexpr std::int64_t heads = 32;

struct measurement {
  std::int64_t tensor = 1;
  recompute_mode recompute = recompute_mode::none;
  shape seen;
  double stored = 0;
  double peak = 0;
};

std::vector<measurement> read(const char* path) {
  std::ifstream file{path};
  std::vector<measurement> all;
  std::string line;
  std::getline(file, line);
  while (std::getline(file, line)) {
    std::istringstream fields{line};
    std::string tensor, recompute, layer, input, target, rows, stored, peak;
    for (std::string* field : {&tensor, &recompute, &layer, &input, &target, &rows, &stored})
      std::getline(fields, *field, ',');
    std::getline(fields, peak);
    all.push_back({std::stoll(tensor),
                   value_in(recompute_names, recompute).value(),
                   {std::stoll(rows), std::stoll(input), 0},
                   std::stod(stored) * 1e6,
                   std::stod(peak) * 1e6});
  }
  return all;
}

/// What a stack holds beside its layers.
double beside(const shape& s, std::int64_t tensor) {
  const auto tokens = static_cast<double>(s.rows * s.input);
  const double scores = tokens * static_cast<double>(s.input * heads) / static_cast<double>(tensor);
  return 2 * tokens * hidden + scores / 10 + 427e3;
}

double at(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  return values[std::min(values.size() - 1, static_cast<std::size_t>(share * static_cast<double>(values.size())))];
}
std::vector<double> errors(const std::vector<double>& ratios) {
  std::vector<double> result;
  for (const double ratio : ratios)
    result.push_back(std::abs(ratio - 1));
  return result;
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 2) return 2;
  if (!std::ifstream{arguments[1]}) {
    std::printf("no %s: skipped\n", arguments[1]);
    return 77;
  }
  const std::vector<measurement> all = read(arguments[1]);
  if (all.size() < 100) {
    std::printf("%s: %zu points only\n", arguments[1], all.size());
    return 1;
  }
  model_spec model = presets::gpt("gpt", 32, hidden, heads);
  model.type = dtype::fp16;
  model.kernel = attention_kernel::unfused;
  const double reserve = static_cast<double>(mib(1).value());
  bool good = true;
  std::printf(
      "analytic / measured      points  stored: bare layer   with the stack's own     peak\n"
      "tp recompute   (2, 1 layers)     median     p95      median     p95      median    p95    max"
      "    least, with reserve\n");
  for (const std::int64_t tensor : {1, 2, 4})
    for (const recompute_mode recompute : {recompute_mode::none, recompute_mode::selective, recompute_mode::full}) {
      const analytic_cost cost{model, presets::a100_40g(), {.tensor_parallel = tensor}};
      std::vector<double> bare, stored, peak, reserved;
      int shorter = 0;
      for (const measurement& m : all) {
        if (m.tensor != tensor || m.recompute != recompute) continue;
        const auto layer = static_cast<double>(cost.stored(layer_kind::decoder, m.seen, recompute).value());
        const double extra = beside(m.seen, tensor);
        const auto peak_of = [&](std::int64_t layers) {
          return static_cast<double>(peak_of_stack(cost, {layer_kind::decoder, layers}, m.seen, recompute).value()) +
                 extra;
        };
        // Near the device's end fewer layers ran; the stored bytes say how many.
        std::int64_t layers = 3;
        if (peak_of(3) > 12e9) layers = std::clamp<std::int64_t>(std::llround(extra / (m.stored - layer)), 1, 3);
        shorter += layers < 3;
        bare.push_back(layer / m.stored);
        stored.push_back((layer + extra / static_cast<double>(layers)) / m.stored);
        peak.push_back(peak_of(layers) / m.peak);
        reserved.push_back((peak_of(layers) + reserve) / m.peak);
      }
      const double bound = recompute == recompute_mode::full ? 0.10 : 0.08;
      const bool holds = std::abs(at(stored, 0.5) - 1) <= 0.01 && at(errors(stored), 0.95) <= bound &&
                         std::abs(at(peak, 0.5) - 1) <= 0.10 && at(reserved, 0) >= 0.95;
      good = good && holds;
      std::printf(
          "%2d %-10s %4zu (%2d)           %.4f  %5.2f %%     %.4f  %5.2f %%     %.4f  %5.2f %%  %.3f  %.4f  %.4f%s\n",
          static_cast<int>(tensor), std::string{to_string(recompute)}.c_str(), stored.size(), shorter, at(bare, 0.5),
          100 * at(errors(bare), 0.95), at(stored, 0.5), 100 * at(errors(stored), 0.95), at(peak, 0.5),
          100 * at(errors(peak), 0.95), at(peak, 1), at(peak, 0), at(reserved, 0), holds ? "" : "  MISSED");
    }
  return good ? 0 : 1;
}
