#include <algorithm>
#include <cmath>
#include <cstddef>
#include <random>
#include <vector>

#include <doctest/doctest.h>

#include <dynapipe/ext/fit.hpp>

using namespace dynapipe;

namespace {

/// Solves A x = b by elimination with full pivoting in long double; false where A is singular.
bool eliminate(std::vector<std::vector<long double>> a, std::vector<long double> b, std::vector<long double>& x) {
  const std::size_t n = b.size();
  std::vector<std::size_t> order(n);
  for (std::size_t i = 0; i < n; ++i)
    order[i] = i;
  for (std::size_t k = 0; k < n; ++k) {
    std::size_t row = k;
    std::size_t column = k;
    for (std::size_t i = k; i < n; ++i)
      for (std::size_t j = k; j < n; ++j)
        if (std::fabs(a[i][j]) > std::fabs(a[row][column])) {
          row = i;
          column = j;
        }
    if (std::fabs(a[row][column]) < 1e-13L) return false;
    std::swap(a[k], a[row]);
    std::swap(b[k], b[row]);
    for (auto& r : a)
      std::swap(r[k], r[column]);
    std::swap(order[k], order[column]);
    for (std::size_t i = k + 1; i < n; ++i) {
      const long double f = a[i][k] / a[k][k];
      for (std::size_t j = k; j < n; ++j)
        a[i][j] -= f * a[k][j];
      b[i] -= f * b[k];
    }
  }
  x.assign(n, 0);
  for (std::size_t k = n; k-- > 0;) {
    long double sum = b[k];
    for (std::size_t j = k + 1; j < n; ++j)
      sum -= a[k][j] * x[order[j]];
    x[order[k]] = sum / a[k][k];
  }
  return true;
}

}  // namespace

TEST_CASE("fit: non-negative least squares is the best over all sets of free coefficients") {
  for (const std::uint64_t seed : {31U, 32U, 33U}) {
    CAPTURE(seed);
    std::mt19937_64 random{seed};
    std::normal_distribution<double> normal;
    for (int round = 0; round < 400; ++round) {
      const std::size_t n = 1 + random() % 7;
      const std::size_t rows = 1 + random() % 12;
      const int character = static_cast<int>(random() % 4);
      // Columns of any sign; all positive; nearly the same; some the same.
      std::vector<std::vector<double>> columns(n, std::vector<double>(rows));
      for (std::size_t j = 0; j < n; ++j)
        for (std::size_t i = 0; i < rows; ++i) {
          const double drawn = normal(random);
          columns[j][i] = character == 0 ? drawn : std::abs(drawn) + 0.01;
          if (character == 2 && j > 0) columns[j][i] = columns[0][i] * (1 + 1e-3 * drawn);
          if (character == 3 && j % 2 == 1) columns[j][i] = columns[j - 1][i];
        }
      std::vector<double> wanted(rows);
      for (double& w : wanted)
        w = normal(random) + (character == 0 ? 0 : 1);
      for (std::vector<double>& column : columns) {
        double norm = 0;
        for (const double v : column)
          norm += v * v;
        for (double& v : column)
          v /= std::sqrt(norm);
      }
      fit_detail::small_matrix gram(static_cast<int>(n), static_cast<int>(n));
      fit_detail::small_vector right(static_cast<int>(n));
      for (std::size_t a = 0; a < n; ++a) {
        double dot = 0;
        for (std::size_t i = 0; i < rows; ++i)
          dot += columns[a][i] * wanted[i];
        right[static_cast<int>(a)] = dot;
        for (std::size_t b = 0; b < n; ++b) {
          double product = 0;
          for (std::size_t i = 0; i < rows; ++i)
            product += columns[a][i] * columns[b][i];
          gram(static_cast<int>(a), static_cast<int>(b)) = product;
        }
      }
      const auto residual = [&](const auto& x) {
        long double sum = 0;
        for (std::size_t i = 0; i < rows; ++i) {
          long double off = -wanted[i];
          for (std::size_t j = 0; j < n; ++j)
            off += static_cast<long double>(columns[j][i]) * x(j);
          sum += off * off;
        }
        return sum;
      };
      long double best = residual([](std::size_t) { return 0.0L; });
      for (unsigned set = 1; set < (1U << n); ++set) {
        std::vector<std::size_t> free;
        for (std::size_t j = 0; j < n; ++j)
          if (((set >> j) & 1U) != 0) free.push_back(j);
        std::vector<std::vector<long double>> a(free.size(), std::vector<long double>(free.size()));
        std::vector<long double> b(free.size());
        for (std::size_t p = 0; p < free.size(); ++p)
          for (std::size_t i = 0; i < rows; ++i) {
            b[p] += static_cast<long double>(columns[free[p]][i]) * wanted[i];
            for (std::size_t q = 0; q < free.size(); ++q)
              a[p][q] += static_cast<long double>(columns[free[p]][i]) * columns[free[q]][i];
          }
        std::vector<long double> x;
        if (!eliminate(a, b, x) || *std::min_element(x.begin(), x.end()) < 0) continue;
        best = std::min(best, residual([&](std::size_t j) {
                          const auto at = std::find(free.begin(), free.end(), j);
                          return at == free.end() ? 0.0L : x[static_cast<std::size_t>(at - free.begin())];
                        }));
      }
      const fit_detail::small_vector got = fit_detail::non_negative_minimum(gram, right);
      CAPTURE(round);
      CAPTURE(character);
      REQUIRE(got.allFinite());
      REQUIRE(got.minCoeff() >= 0);
      const long double reached =
          residual([&](std::size_t j) { return static_cast<long double>(got[static_cast<int>(j)]); });
      REQUIRE(static_cast<double>(reached) <= static_cast<double>(best) + 1e-7);
    }
  }
}
